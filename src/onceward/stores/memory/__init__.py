"""The in-memory store: `memory://`. For tests, and for work that only one process does.

Read `store.py` first.
"""

from .store import MemoryStore, from_url

__all__ = ["MemoryStore", "from_url"]
