"""The in-memory store: `memory://`. For tests, and for work that one process does alone.

Read `store.py` first.
"""

from .store import MemoryStore, from_url

__all__ = ["MemoryStore", "from_url"]
