"""Counters: one row per process and hour, overwritten as the process keeps counting."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from onceward.protocol.counters import CounterRow, StoredCounts, decode_counts, encode_counts, oldest_kept_hour
from onceward.protocol.ports import Clock

from .connection import SQLiteConnection
from .maintenance import CHUNK

Cursor = sqlite3.Cursor
Rows = Sequence[tuple[int, bytes, int, str]]

SWEEP_PER_ROW = 2
"""Expired rows deleted for each row that is written. Twice the number added, so the table does not only grow."""

_UPSERT = """
INSERT INTO onceward_counters (hour, process, number, counts) VALUES (?, ?, ?, ?)
ON CONFLICT (hour, process) DO UPDATE SET number = excluded.number, counts = excluded.counts
WHERE excluded.number > number
"""
_COUNTED = "SELECT process, hour, number, counts FROM onceward_counters WHERE hour >= ? ORDER BY hour, process"
_OLD = "SELECT hour, process FROM onceward_counters WHERE hour < ? ORDER BY hour, process LIMIT ?"
_EXPIRE = f"DELETE FROM onceward_counters WHERE (hour, process) IN ({_OLD})"  # noqa: S608 (our own text)


class SQLiteCounters:
    """The counters of `SQLiteStore`."""

    _connection: SQLiteConnection
    _clock: Clock
    _run: Callable[..., Coroutine[Any, Any, Any]]
    _run_until: Callable[..., Coroutine[Any, Any, Any]]

    async def save_counts(self, counter_rows: Sequence[CounterRow], *, timeout: float) -> int:
        if not counter_rows:
            return self._clock.now()
        rows = [(one.hour, one.process, one.number, encode_counts(one.counts).decode()) for one in counter_rows]
        now: int = await self._run(timeout, self._connection.write, self._insert_counts, rows)
        return now

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        found: StoredCounts = await self._run(timeout, self._counted, since)
        return found

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        """Delete expired rows in chunks, each in a transaction of its own, so that other calls can run in between."""
        deadline = time.monotonic() + timeout
        total = 0
        while total < limit:
            chunk = min(limit - total, CHUNK)
            deleted: int = await self._run_until(deadline, self._expire_counts, chunk)
            total += deleted
            if deleted < chunk:
                break
        return total

    # ── blocking, called with the connection's lock held ──

    def _insert_counts(self, cursor: Cursor, rows: Rows) -> int:
        now = self._clock.now()
        cursor.executemany(_UPSERT, rows)
        cursor.execute(_EXPIRE, (oldest_kept_hour(now), SWEEP_PER_ROW * len(rows)))
        return now

    def _counted(self, cursor: Cursor, since: int) -> StoredCounts:
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


def _delete_expired(cursor: Cursor, oldest: int, limit: int) -> int:
    return cursor.execute(_EXPIRE, (oldest, limit)).rowcount
