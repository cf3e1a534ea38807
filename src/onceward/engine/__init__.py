"""What happens to one piece of work, from the claim to the final answer, written once for sync and async.

Read `runner.py` first: it is the flow. `attempt.py` has the states of an attempt and the table of legal moves.
`lookup.py` answers completed keys, `acquire.py` claims keys and waits for them, `refusal.py` explains why a claim was
refused. `conclude.py` decides how the work ends, `settle.py` writes that to the store, `retry.py` asks the store again,
`abandon.py` cleans up after interrupts. `block.py` is the `with` block, `many.py` is `once.map`, `stream.py` is
`once.imap`, `within.py` is work in the caller's own transaction. `engine.py` holds the store, the runtime and the
heartbeat, `events.py` reports it all.
"""
