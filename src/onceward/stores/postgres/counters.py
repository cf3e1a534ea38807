"""What processes have counted: a row for each hour of each process, written over as it goes on counting."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from onceward.protocol.counters import COUNTS_RETENTION, CounterRow, StoredCounts, decode_counts, encode_counts

from .maintenance import Turn, in_chunks

SWEEP: Final = 2
"""Old sheets deleted by the way per sheet: twice what is added."""


class PostgresCounters:
    """Part of `PostgresStore`."""

    _with: Callable[..., Coroutine[Any, Any, Any]]

    async def save_counts(self, sheets: Sequence[CounterRow], *, timeout: float) -> int:
        now: int = await self._with(time.monotonic() + timeout, _keep, sheets)
        return now

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        found: StoredCounts = await self._with(time.monotonic() + timeout, _counted, since)
        return found

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        return await in_chunks(partial(self._with, time.monotonic() + timeout, _expire), limit)


async def _keep(turn: Turn, sheets: Sequence[CounterRow]) -> int:
    [(now, _)] = await turn.rows(
        turn.table.statements.counters_keep,
        turn.now,
        [one.hour for one in sheets],
        [one.process for one in sheets],
        [one.number for one in sheets],
        [encode_counts(one.counts).decode() for one in sheets],
    )
    if sheets:
        await _expire(turn, SWEEP * len(sheets))
    return int(now)


async def _counted(turn: Turn, since: int) -> StoredCounts:
    rows = await turn.rows(turn.table.statements.counters, turn.now, since, COUNTS_RETENTION)
    sheets = [
        CounterRow(process, hour, number, decode_counts(counts)) for _, process, hour, number, counts in rows if process
    ]
    return StoredCounts(sheets, rows[0][0])


async def _expire(turn: Turn, limit: int) -> int:
    [(gone,)] = await turn.rows(turn.table.statements.counters_expire, turn.now, COUNTS_RETENTION, limit)
    return int(gone)
