"""The PostgreSQL store: `postgresql://user@host/database`."""

from __future__ import annotations

from .joined import PostgresJoined
from .store import PostgresStore
from .url import parse

__all__ = ["PostgresJoined", "PostgresStore", "from_url"]


def from_url(url: str) -> PostgresStore:
    """The store that the URL names, not connected yet.

    Beside what libpq knows: `?schema=` where the tables are, `?migrate=1` to make them when it is opened,
    `?connections=` how many at most (4), `?prepare=0` if a pooler is in between that nobody would notice.
    """
    return PostgresStore(parse(url))
