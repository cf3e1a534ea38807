"""What happens to one piece of work, from the claim to the outcome, written once for sync and async.

Read `runner.py` first: it contains the flow, and looks up completed keys. `attempt.py` has the states of an attempt and
the table of legal moves. `acquire.py` claims keys and waits for them. `refusal.py` explains why a claim was refused.
`conclude.py` decides how the work ends, and `settle.py` writes that to the store. `retry.py` repeats requests that the
store did not answer. `abandon.py` cleans up after interrupts. `block.py` is the `with` block, `many.py` is `once.map`,
`stream.py` is `once.imap`, and `within.py` is work in the caller's own transaction. `engine.py` holds the store, the
runtime and the heartbeat. `events.py` defines the events and delivers them.
"""
