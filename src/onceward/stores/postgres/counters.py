"""Counters: one row per process and hour, overwritten as the process keeps counting."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from onceward.protocol.counters import COUNTS_RETENTION, CounterRow, StoredCounts, decode_counts, encode_counts

from .maintenance import CallContext, delete_in_chunks

SWEEP_PER_ROW: Final = 2
"""Expired rows deleted for each row that is written. Twice the number added, so the table does not only grow."""


class PostgresCounters:
    """The counters of `PostgresStore`."""

    _run_until: Callable[..., Coroutine[Any, Any, Any]]

    async def save_counts(self, counter_rows: Sequence[CounterRow], *, timeout: float) -> int:
        now: int = await self._run_until(time.monotonic() + timeout, _save, counter_rows)
        return now

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        found: StoredCounts = await self._run_until(time.monotonic() + timeout, _read, since)
        return found

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        return await delete_in_chunks(partial(self._run_until, time.monotonic() + timeout, _expire), limit)


async def _save(context: CallContext, counter_rows: Sequence[CounterRow]) -> int:
    [(now, _)] = await context.rows(
        context.table.statements.counters_save,
        context.now,
        [one.hour for one in counter_rows],
        [one.process for one in counter_rows],
        [one.number for one in counter_rows],
        [encode_counts(one.counts).decode() for one in counter_rows],
    )
    if counter_rows:
        await _expire(context, SWEEP_PER_ROW * len(counter_rows))
    return int(now)


async def _read(context: CallContext, since: int) -> StoredCounts:
    rows = await context.rows(context.table.statements.counters_read, context.now, since, COUNTS_RETENTION)
    counter_rows = [
        CounterRow(process, hour, number, decode_counts(counts)) for _, process, hour, number, counts in rows if process
    ]
    return StoredCounts(counter_rows, rows[0][0])


async def _expire(context: CallContext, limit: int) -> int:
    [(deleted,)] = await context.rows(context.table.statements.counters_expire, context.now, COUNTS_RETENTION, limit)
    return int(deleted)
