"""`Once` and `AsyncOnce`: the objects that applications create. They combine everything below them.

Read `base.py` first (configuration, and how jobs are made), then `sync.py`; `aio.py` mirrors it for asyncio.
"""
