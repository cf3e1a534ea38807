"""What this connection saw or wrote last of entities, so that they need not be looked up for every batch."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

MOST = 16_384
"""Entities that are kept at hand: a few megabytes."""


class Alive(NamedTuple):
    """Of entities that are there and not deleted: their orders, and the numbers under which their states are."""

    orders: dict[bytes, bytes]
    numbers: dict[bytes, int]


class SQLiteLatestCache:
    """Only while nobody else writes: SQLite tells a connection whether another one has committed anything since.

    Used within a write transaction, so that it stays true until the commit. Deleted entities are not in here, because
    they expire.
    """

    __slots__ = ("_alive", "_connection", "_version")

    def __init__(self) -> None:
        self._alive = Alive({}, {})
        self._connection: sqlite3.Connection | None = None
        self._version = -1

    def begin(self, cursor: sqlite3.Cursor) -> Alive:
        """What is known for certain. Nothing after somebody else's commit, on a new connection, or after a failure.

        Whoever writes brings it up to date.
        """
        connection = cursor.connection
        version = cursor.execute("PRAGMA data_version").fetchall()[0][0]
        if version != self._version or connection is not self._connection or len(self._alive.orders) > MOST:
            self._alive = Alive({}, {})
        self._connection, self._version = None, version  # in doubt until `keep`
        return self._alive

    def keep(self, cursor: sqlite3.Cursor) -> None:
        """After the commit: what was written has become true."""
        self._connection = cursor.connection
