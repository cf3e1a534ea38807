"""The Redis and Valkey store: `redis://host:6379/0`, `rediss://…` over TLS, `unix:///path/to/socket?db=0`.

Read `lua/cells.lua` first (the state table on the server), `lua/record.lua` (how a record is stored), then `store.py`,
`requests.py`, `records.py` (answers) and `transport.py` (how calls are sent on redis-py's connections).
"""

from __future__ import annotations

from .address import from_client, parse
from .store import RedisStore

__all__ = ["RedisStore", "from_client", "from_url"]


def from_url(url: str) -> RedisStore:
    """Return the store for a `url`, not yet connected. The query may set `prefix`, which starts every Redis key."""
    address, settings = parse(url)
    return RedisStore(address, **settings)
