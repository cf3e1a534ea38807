"""The orders of entities that this connection saw or wrote last, so that they need not be looked up for every batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from onceward.model.newest import Delivery

MOST = 16_384
"""Entities whose orders are kept at hand: a few megabytes."""


class Orders:
    """Only while nobody else writes: SQLite tells a connection whether another one has committed anything since.

    Used within a write transaction, so that it stays true until the commit. Deleted entities are not in here, because
    they expire.
    """

    __slots__ = ("_connection", "_orders", "_version")

    def __init__(self) -> None:
        self._orders: dict[bytes, bytes] = {}
        self._connection: sqlite3.Connection | None = None
        self._version = -1

    def begin(self, cursor: sqlite3.Cursor) -> dict[bytes, bytes]:
        """What is known for certain. Empty after somebody else's commit, on a new connection, or after a failure.

        More that is found may be added.
        """
        connection = cursor.connection
        version = cursor.execute("PRAGMA data_version").fetchall()[0][0]
        if version != self._version or connection is not self._connection or len(self._orders) > MOST:
            self._orders = {}
        self._connection, self._version = None, version  # in doubt until `keep`
        return self._orders

    def keep(self, cursor: sqlite3.Cursor, newest: Mapping[bytes, Delivery]) -> None:
        """After the commit: what was written over what had been there."""
        orders = self._orders
        for id, one in newest.items():
            if one.value is None:
                orders.pop(id, None)
            else:
                orders[id] = one.order
        self._connection = cursor.connection
