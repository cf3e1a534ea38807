"""Distributed locks: one owner at a time, with a lease and a fencing token.

Read `api.py` first (`once.lock(…)`), then `flow.py` (how a lock is acquired and released).
"""

from .api import AsyncHeldLock, AsyncLock, HeldLock, Lock

__all__ = ["AsyncHeldLock", "AsyncLock", "HeldLock", "Lock"]
