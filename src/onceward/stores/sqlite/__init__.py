"""The SQLite store: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://:memory:`.

Read `store.py` first, then `table.py` (the state table applied to rows), `joined.py` (inside the caller's transaction)
and `connection.py` (one thread at a time, deadlines, forks).
"""

from __future__ import annotations

from .store import SQLiteStore
from .url import parse

__all__ = ["SQLiteStore", "from_url"]


def from_url(url: str) -> SQLiteStore:
    """Return the store for a `url`, not yet connected.

    With `?synchronous=NORMAL` writes are faster, but after a power failure the last ones may be missing.
    """
    path, settings = parse(url)
    return SQLiteStore(path, synchronous=settings.get("synchronous", "FULL"))
