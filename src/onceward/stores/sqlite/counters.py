"""What processes have counted: a row for each hour of each process, written over as it goes on counting."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from onceward.protocol.counters import Counted, Sheet, decoded, encoded, oldest_kept
from onceward.protocol.ports import Clock

from .connection import Allowance, SQLiteConnection
from .maintenance import CHUNK

Cursor = sqlite3.Cursor
Rows = Sequence[tuple[int, bytes, int, str]]

SWEEP = 2
"""Old sheets deleted by the way per sheet: twice what is added."""

_KEEP = """
INSERT INTO onceward_counters (hour, process, number, counts) VALUES (?, ?, ?, ?)
ON CONFLICT (hour, process) DO UPDATE SET number = excluded.number, counts = excluded.counts
WHERE excluded.number > number
"""
_COUNTED = "SELECT process, hour, number, counts FROM onceward_counters WHERE hour >= ? ORDER BY hour, process"
_OLD = "SELECT hour, process FROM onceward_counters WHERE hour < ? ORDER BY hour, process LIMIT ?"
_EXPIRE = f"DELETE FROM onceward_counters WHERE (hour, process) IN ({_OLD})"  # noqa: S608 (our own text)


class SQLiteCounters:
    """Part of `SQLiteStore`."""

    _link: SQLiteConnection
    _clock: Clock
    _turn_of: Callable[..., Coroutine[Any, Any, Any]]

    async def keep_counts(self, sheets: Sequence[Sheet], *, timeout: float) -> int:
        if not sheets:
            return self._clock.now()
        rows = [(one.hour, one.process, one.number, encoded(one.counts).decode()) for one in sheets]
        now: int = await self._turn_of(Allowance.of(timeout), self._keep_counts, rows)
        return now

    async def counted(self, since: int, *, timeout: float) -> Counted:
        found: Counted = await self._turn_of(Allowance.of(timeout), self._counted, since)
        return found

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        """In chunks, each a turn and a transaction of its own, so that others pass in between."""
        allowance = Allowance.of(timeout)
        gone = 0
        while gone < limit:
            most = min(limit - gone, CHUNK)
            went: int = await self._turn_of(allowance, self._expire_counts, most)
            gone += went
            if went < most:
                break
        return gone

    # ── the same, blocking, with the connection in hand ──

    def _keep_counts(self, cursor: Cursor, rows: Rows) -> int:
        return self._link.write(cursor, self._written_down, rows)

    def _written_down(self, cursor: Cursor, rows: Rows) -> int:
        now = self._clock.now()
        cursor.executemany(_KEEP, rows)
        cursor.execute(_EXPIRE, (oldest_kept(now), SWEEP * len(rows)))
        return now

    def _counted(self, cursor: Cursor, since: int) -> Counted:
        now = self._clock.now()
        rows = cursor.execute(_COUNTED, (max(since, oldest_kept(now)),)).fetchall()
        return Counted([Sheet(process, hour, number, decoded(counts)) for process, hour, number, counts in rows], now)

    def _expire_counts(self, cursor: Cursor, limit: int) -> int:
        oldest = oldest_kept(self._clock.now())
        if not cursor.execute(_OLD, (oldest, 1)).fetchall():
            return 0  # and no lock was taken
        return self._link.write(cursor, _expired, oldest, limit)


def _expired(cursor: Cursor, oldest: int, limit: int) -> int:
    return cursor.execute(_EXPIRE, (oldest, limit)).rowcount
