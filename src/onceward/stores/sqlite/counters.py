"""Counters: one row per process and hour, overwritten as the process keeps counting."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from onceward.protocol.counters import CounterRow, StoredCounts, decode_counts, encode_counts, oldest_kept_hour
from onceward.protocol.ports import Clock
from onceward.stores.sql_capabilities import SWEEP_PER_ROW, SqlCounters

from .connection import SQLiteConnection

Cursor = sqlite3.Cursor
Rows = Sequence[tuple[int, bytes, int, str]]

_UPSERT = """
INSERT INTO onceward_counters (hour, process, number, counts) VALUES (?, ?, ?, ?)
ON CONFLICT (hour, process) DO UPDATE SET number = excluded.number, counts = excluded.counts
WHERE excluded.number > number
"""
_COUNTED = "SELECT process, hour, number, counts FROM onceward_counters WHERE hour >= ? ORDER BY hour, process"
_OLD = "SELECT hour, process FROM onceward_counters WHERE hour < ? ORDER BY hour, process LIMIT ?"
_EXPIRE = f"DELETE FROM onceward_counters WHERE (hour, process) IN ({_OLD})"  # noqa: S608 (our own text)


class SQLiteCounters(SqlCounters):
    """The counters of `SQLiteStore`. All methods block, and are called with the connection's lock held."""

    _connection: SQLiteConnection
    _clock: Clock

    def _save_counts(self, cursor: Cursor, counter_rows: Sequence[CounterRow]) -> int:
        if counter_rows:
            rows = [(one.hour, one.process, one.number, encode_counts(one.counts).decode()) for one in counter_rows]
            self._connection.write(cursor, _insert, rows, oldest_kept_hour(self._clock.now()))
        return self._clock.now()

    def _read_counts(self, cursor: Cursor, since: int) -> StoredCounts:
        now = self._clock.now()
        rows = cursor.execute(_COUNTED, (max(since, oldest_kept_hour(now)),)).fetchall()
        return StoredCounts(
            [CounterRow(process, hour, number, decode_counts(counts)) for process, hour, number, counts in rows], now
        )

    def _expire_counts(self, cursor: Cursor, limit: int) -> int:
        oldest = oldest_kept_hour(self._clock.now())
        if not cursor.execute(_OLD, (oldest, 1)).fetchall():
            return 0  # without taking the write lock
        return self._connection.write(cursor, _delete_expired, oldest, limit)


def _insert(cursor: Cursor, rows: Rows, oldest: int) -> None:
    cursor.executemany(_UPSERT, rows)
    _delete_expired(cursor, oldest, SWEEP_PER_ROW * len(rows))


def _delete_expired(cursor: Cursor, oldest: int, limit: int) -> int:
    return cursor.execute(_EXPIRE, (oldest, limit)).rowcount
