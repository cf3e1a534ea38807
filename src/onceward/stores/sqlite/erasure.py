"""Erase everything that names a key from every table of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from onceward.errors import StoreUnavailable
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

LOG_REMAINS: Final = (
    "the erased content is still in the write-ahead log (the file ending in -wal), because another connection is using "
    "the database → erase again when the database is idle, even if no record matches then"
)


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

    async def discard_deleted(self, *, timeout: float) -> str:
        """Copy the write-ahead log into the database and truncate it. It contains earlier versions of the pages."""
        try:
            remains: str = await self._run(timeout, self._truncate_log)
        except StoreUnavailable:  # another connection is writing
            return LOG_REMAINS
        return remains

    # ── blocking, called with the connection's lock held ──

    def _with_reader(self, cursor: Cursor, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        return without_waiting(work(SQLiteReader(cursor, self._clock.now()), *arguments))

    def _change_rows(self, cursor: Cursor, text: str, keys: Sequence[Any]) -> int:
        return self._connection.write(cursor, change_rows, text.format(prefix="", matches="= ?"), keys)

    def _truncate_log(self, cursor: Cursor) -> str:
        [(busy, _, _)] = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return LOG_REMAINS if busy else ""

    def _add_purge_entry(self, cursor: Cursor, signed: AuditSignature, count: int) -> None:
        self._connection.write(cursor, audit.write, [purge_entry(signed, count, self._clock.now())])


def change_rows(cursor: Cursor, statement: str, keys: Sequence[Any]) -> int:
    return cursor.executemany(statement, [(key,) for key in keys]).rowcount
