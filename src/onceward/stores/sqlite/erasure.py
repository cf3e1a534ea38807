"""Erase everything that names a key from every table of the file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from onceward.protocol.audit import AuditSignature, purge_entry
from onceward.protocol.capabilities import Erasure
from onceward.protocol.erasure import ErasureFilter, FoundEntity
from onceward.protocol.ports import Clock
from onceward.protocol.record import Record

from . import audit
from .connection import SQLiteConnection
from .latest_cache import SQLiteLatestCache
from .maintenance import CHUNK

Cursor = sqlite3.Cursor

_DELETE_FREE = "DELETE FROM onceward_records WHERE id = ? AND state = 'FREE'"
_DELETE_HISTORY = """
DELETE FROM onceward_history
WHERE id = ? AND NOT EXISTS (SELECT 1 FROM onceward_records AS record WHERE record.id = ?)
"""
_ENTITIES = "SELECT id, scope, entity FROM onceward_latest WHERE scope = ?"
_DELETE_ENTITY = "DELETE FROM onceward_latest WHERE id = ?"
_REDACT = "UPDATE onceward_audit SET id = x'', scope = '', key = '', why = '' WHERE number = ?"


class SQLiteErasure:
    """The erasure of `SQLiteStore`."""

    _connection: SQLiteConnection
    _clock: Clock
    _latest_cache: SQLiteLatestCache
    _run: Callable[..., Coroutine[Any, Any, Any]]
    _run_until: Callable[..., Coroutine[Any, Any, Any]]

    @property
    def erasure(self) -> Erasure:
        return self

    async def delete_free(self, records: Sequence[Record], *, timeout: float) -> int:
        deleted = await self._write_rows(_DELETE_FREE, [(one.id,) for one in records], timeout)
        await self._write_rows(_DELETE_HISTORY, [(one.id, one.id) for one in records], timeout)
        return deleted

    async def find_entities(self, wanted: ErasureFilter, *, timeout: float) -> list[FoundEntity]:
        found: list[FoundEntity] = await self._run(timeout, _find_entities, wanted)
        return found

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        self._latest_cache = SQLiteLatestCache()  # it does not notice writes of its own connection
        deleted = await self._write_rows(_DELETE_ENTITY, [(one.id,) for one in found], timeout)
        self._latest_cache = SQLiteLatestCache()
        return deleted

    async def redact_audit(self, wanted: ErasureFilter, *, timeout: float) -> int:
        rows: list[tuple[int]] = await self._run(timeout, _audit_numbers, wanted)
        return await self._write_rows(_REDACT, rows, timeout)

    async def add_audit(self, signed: AuditSignature, count: int, *, timeout: float) -> None:
        await self._run(timeout, self._add_audit, signed, count)

    async def _write_rows(self, statement: str, rows: Sequence[tuple[Any, ...]], timeout: float) -> int:
        """Execute the statement for each row, in transactions of limited size. Return how many rows were changed."""
        deadline, changed = time.monotonic() + timeout, 0
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            changed += await self._run_until(deadline, self._connection.write, _overwrite, statement, chunk)
        return changed

    # ── blocking, called with the connection's lock held ──

    def _add_audit(self, cursor: Cursor, signed: AuditSignature, count: int) -> None:
        self._connection.write(cursor, audit.write, [purge_entry(signed, count, self._clock.now())])


def _overwrite(cursor: Cursor, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Change the rows, and overwrite the deleted content with zeros."""
    cursor.execute("PRAGMA secure_delete = ON")
    try:
        return cursor.executemany(statement, rows).rowcount
    finally:
        cursor.execute("PRAGMA secure_delete = OFF")


def _find_entities(cursor: Cursor, wanted: ErasureFilter) -> list[FoundEntity]:
    scopes = [row[0] for row in cursor.execute("SELECT DISTINCT scope FROM onceward_latest").fetchall()]
    rows = [row for scope in scopes if wanted.selects_scope(scope) for row in cursor.execute(_ENTITIES, (scope,))]
    return [FoundEntity(*row) for row in rows if wanted.selects(row[1], row[2])]


def _audit_numbers(cursor: Cursor, wanted: ErasureFilter) -> list[tuple[int]]:
    rows = cursor.execute("SELECT number, scope, key FROM onceward_audit WHERE key <> ''").fetchall()
    return [(number,) for number, scope, key in rows if wanted.selects(scope, key)]
