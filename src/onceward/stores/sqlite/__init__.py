"""The SQLite store: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://:memory:`."""

from __future__ import annotations

from .joined import SQLiteJoined
from .store import SQLiteStore
from .url import parse

__all__ = ["SQLiteJoined", "SQLiteStore", "from_url"]


def from_url(url: str) -> SQLiteStore:
    """Return the store for the URL, not yet connected. `?synchronous=NORMAL` is faster, but a power cut loses data."""
    path, settings = parse(url)
    return SQLiteStore(path, synchronous=settings.get("synchronous", "FULL"))
