"""The PostgreSQL store: `postgresql://user@host/database`.

Read `store.py` first, then `table.py` with `statements/*.sql` (the state table applied to rows) and `joined.py` (inside
the caller's transaction). `connection.py` talks to the server through psycopg, `pool.py` shares connections.
"""

from __future__ import annotations

from .store import PostgresStore
from .url import parse

__all__ = ["PostgresStore", "from_url"]


def from_url(url: str) -> PostgresStore:
    """Return the store for a `url`, not yet connected.

    In addition to libpq's settings: `?schema=` names the schema of the tables, `?migrate=1` creates them on `open`,
    `?connections=` limits the connections (4), `?prepare=0` is for a pooler that Onceward cannot detect.
    """
    return PostgresStore(parse(url))
