"""The orders of entities that this connection read or wrote last, so that a batch need not look them up."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

MAX_ENTITIES = 16_384
"""The maximum number of cached entities: a few megabytes."""


class LiveEntities(NamedTuple):
    """Entities that exist and are not deleted: their orders, and the numbers of their rows."""

    orders: dict[bytes, bytes]
    numbers: dict[bytes, int]


class SQLiteLatestCache:
    """Valid while no other connection writes: `PRAGMA data_version` shows whether another one has committed.

    Used inside a write transaction, so that it stays valid until the commit. Deleted entities are not cached, because
    they expire.
    """

    __slots__ = ("_connection", "_live", "_version")

    def __init__(self) -> None:
        self._live = LiveEntities({}, {})
        self._connection: sqlite3.Connection | None = None
        self._version = -1

    def load(self, cursor: sqlite3.Cursor) -> LiveEntities:
        """Return the cached entities, which the caller updates as it writes.

        The cache is empty after a commit by another connection, on a new connection, and after a failure.
        """
        connection = cursor.connection
        version = cursor.execute("PRAGMA data_version").fetchall()[0][0]
        if version != self._version or connection is not self._connection or len(self._live.orders) > MAX_ENTITIES:
            self._live = LiveEntities({}, {})
        self._connection, self._version = None, version  # invalid until `confirm`
        return self._live

    def confirm(self, cursor: sqlite3.Cursor) -> None:
        """Make the cache valid after the commit."""
        self._connection = cursor.connection
