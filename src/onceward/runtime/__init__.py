"""Everything that differs between threads and asyncio: waiting, batching, heartbeats, running flows without a loop.

Read `threads.py` and `aio.py` first: each implements `protocol.runtime.Runtime`, and `threads.run` runs async code from
sync code. `heartbeat.py` renews leases, `thread_batcher.py` and `async_batcher.py` are the group commit.
"""
