"""The history of keys: one row per event, deleted with its record."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from onceward.protocol.capabilities import History
from onceward.protocol.history import MAX_EVENTS, HistoryEvent, belongs_to, column_values
from onceward.protocol.ports import Clock
from onceward.protocol.record import RecordState
from onceward.stores.sql import STATES, escape_surrogates

from .connection import SQLiteConnection

Cursor = sqlite3.Cursor

FIELDS = HistoryEvent.__struct_fields__
COLUMNS = ", ".join(FIELDS)

_LIFETIME = "SELECT state, token, coalesce(cycle, token) FROM onceward_records WHERE id = ?"
_ADD = f"""
INSERT INTO onceward_history ({COLUMNS}) VALUES ({", ".join("?" * len(FIELDS))})
ON CONFLICT (id, token, name) DO UPDATE SET
    at = min(at, excluded.at), last_at = max(last_at, excluded.last_at), count = count + excluded.count
WHERE excluded.last_at <> last_at AND name IN ('renewed', 'replayed', 'mismatch')
"""  # noqa: S608 (names of fields)
_TRIM = f"""
DELETE FROM onceward_history WHERE id = ? AND (token, name) IN (
    SELECT token, name FROM onceward_history WHERE id = ? ORDER BY last_at DESC, token DESC, name DESC
    LIMIT -1 OFFSET {MAX_EVENTS}
)
"""  # noqa: S608 (our own number)
_READ = f"SELECT {COLUMNS} FROM onceward_history WHERE id = ? ORDER BY last_at DESC, token DESC, name DESC LIMIT ?"  # noqa: S608 (names of fields)
_DELETE = "DELETE FROM onceward_history WHERE id = ?"


class _Lifetime(NamedTuple):
    state: RecordState
    token: int
    cycle: int


class SQLiteHistory:
    """The history of `SQLiteStore`."""

    _connection: SQLiteConnection
    _clock: Clock
    _run: Callable[..., Coroutine[Any, Any, Any]]

    @property
    def history(self) -> History:
        return self

    async def append_history(self, events: Sequence[HistoryEvent], *, timeout: float) -> int:
        if events:
            await self._run(timeout, self._connection.write, _append, events)
        return self._clock.now()

    async def read_history(self, id: bytes, *, limit: int, timeout: float) -> list[HistoryEvent]:
        found: list[HistoryEvent] = await self._run(timeout, _read, id, limit)
        return found


def delete(cursor: Cursor, ids: Iterable[bytes]) -> None:
    """Delete the events of these records, and overwrite their content: an error text may name a person."""
    cursor.execute("PRAGMA secure_delete = ON")
    try:
        cursor.executemany(_DELETE, [(id,) for id in ids])
    finally:
        cursor.execute("PRAGMA secure_delete = OFF")


def _append(cursor: Cursor, events: Sequence[HistoryEvent]) -> None:
    by_id: dict[bytes, list[HistoryEvent]] = {}
    for event in events:
        by_id.setdefault(event.id, []).append(event)
    for id, mine in by_id.items():
        found = cursor.execute(_LIFETIME, (id,)).fetchone()
        record = None if found is None else _Lifetime(STATES.get(found[0], RecordState.PENDING), *found[1:])
        rows = [_row(event) for event in mine if belongs_to(event, record)]
        if rows:
            cursor.executemany(_ADD, rows)
            cursor.execute(_TRIM, (id, id))


def _row(event: HistoryEvent) -> list[Any]:
    return [escape_surrogates(value) if isinstance(value, str) else value for value in column_values(event)]


def _read(cursor: Cursor, id: bytes, limit: int) -> list[HistoryEvent]:
    rows = cursor.execute(_READ, (id, limit)).fetchall()
    return [HistoryEvent(*row) for row in reversed(rows)]
