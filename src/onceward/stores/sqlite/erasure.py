"""Erase everything that names a key from every table of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from onceward.protocol.audit import AuditSignature, purge_entry
from onceward.protocol.erasure import FoundEntity
from onceward.protocol.ports import Clock
from onceward.stores.sql_capabilities import SqlErasure
from onceward.stores.sql_reading import without_waiting

from . import audit
from .connection import SQLiteConnection
from .latest_cache import SQLiteLatestCache
from .reader import SQLiteReader

Cursor = sqlite3.Cursor


class SQLiteErasure(SqlErasure):
    """The erasure of `SQLiteStore`."""

    _connection: SQLiteConnection
    _clock: Clock
    _latest_cache: SQLiteLatestCache

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        self._latest_cache = SQLiteLatestCache()  # it does not notice writes of its own connection
        deleted = await super().delete_entities(found, timeout=timeout)
        self._latest_cache = SQLiteLatestCache()
        return deleted

    # ── blocking, called with the connection's lock held ──

    def _with_reader(self, cursor: Cursor, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        return without_waiting(work(SQLiteReader(cursor, self._clock.now()), *arguments))

    def _change_rows(self, cursor: Cursor, text: str, keys: Sequence[Any]) -> int:
        return self._connection.write(cursor, overwrite, text.format(prefix="", matches="= ?"), keys)

    def _add_purge_entry(self, cursor: Cursor, signed: AuditSignature, count: int) -> None:
        self._connection.write(cursor, audit.write, [purge_entry(signed, count, self._clock.now())])


def overwrite(cursor: Cursor, statement: str, keys: Sequence[Any]) -> int:
    """Change the rows of these keys, and overwrite the deleted content with zeros."""
    cursor.execute("PRAGMA secure_delete = ON")
    try:
        return cursor.executemany(statement, [(key,) for key in keys]).rowcount
    finally:
        cursor.execute("PRAGMA secure_delete = OFF")
