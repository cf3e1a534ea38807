"""The history of keys: one row per event, deleted with its record."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from onceward.protocol.history import MAX_EVENTS, HistoryEvent, column_values
from onceward.protocol.ports import Clock
from onceward.stores.sql import escape_surrogates
from onceward.stores.sql_capabilities import SqlHistory, events_to_keep

from .connection import SQLiteConnection
from .erasure import change_rows

Cursor = sqlite3.Cursor

FIELDS = HistoryEvent.__struct_fields__
COLUMNS = ", ".join(FIELDS)

_LIFETIME = "SELECT id, state, token, coalesce(cycle, token) FROM onceward_records WHERE id = ?"
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


class SQLiteHistory(SqlHistory):
    """The history of `SQLiteStore`. All methods block, and are called with the connection's lock held."""

    _connection: SQLiteConnection
    _clock: Clock

    def _append_history(self, cursor: Cursor, events: Sequence[HistoryEvent]) -> int:
        if events:
            self._connection.write(cursor, _append, events)
        return self._clock.now()

    def _read_history(self, cursor: Cursor, id: bytes, limit: int) -> list[HistoryEvent]:
        rows = cursor.execute(_READ, (id, limit)).fetchall()
        return [HistoryEvent(*row) for row in reversed(rows)]


def delete(cursor: Cursor, ids: Sequence[bytes]) -> None:
    """Delete the events of these records. `secure_delete` overwrites them: an error text may name a person."""
    change_rows(cursor, _DELETE, ids)


def _append(cursor: Cursor, events: Sequence[HistoryEvent]) -> None:
    ids = {event.id for event in events}
    kept = events_to_keep(events, [row for id in ids for row in cursor.execute(_LIFETIME, (id,)).fetchall()])
    cursor.executemany(_ADD, [_row(event) for event in kept])
    cursor.executemany(_TRIM, [(id, id) for id in {event.id for event in kept}])


def _row(event: HistoryEvent) -> list[Any]:
    return [escape_surrogates(value) if isinstance(value, str) else value for value in column_values(event)]
