"""What happens to one piece of work, from the claim to the final answer, written once for sync and async.

Read `execute.py` first: it is the main flow. `acquire.py` claims a key, `attempt.py` is the claim while its owner
works, `settle_outcome.py` records how the work ended, `events.py` reports it.
"""
