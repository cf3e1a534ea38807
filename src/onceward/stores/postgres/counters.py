"""Counters: one row per process and hour, overwritten as the process keeps counting."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.counters import COUNTS_RETENTION, CounterRow, StoredCounts, decode_counts, encode_counts
from onceward.stores.sql_capabilities import SWEEP_PER_ROW, SqlCounters

from .maintenance import CallContext


class PostgresCounters(SqlCounters):
    """The counters of `PostgresStore`."""

    async def _save_counts(self, context: CallContext, counter_rows: Sequence[CounterRow]) -> int:
        [(now, _)] = await context.rows(
            context.table.statements.counters_save,
            context.now,
            [one.hour for one in counter_rows],
            [one.process for one in counter_rows],
            [one.number for one in counter_rows],
            [encode_counts(one.counts).decode() for one in counter_rows],
        )
        if counter_rows:
            await self._expire_counts(context, SWEEP_PER_ROW * len(counter_rows))
        return int(now)

    async def _read_counts(self, context: CallContext, since: int) -> StoredCounts:
        rows = await context.rows(context.table.statements.counters_read, context.now, since, COUNTS_RETENTION)
        counter_rows = [
            CounterRow(process, hour, number, decode_counts(counts))
            for _, process, hour, number, counts in rows
            if process
        ]
        return StoredCounts(counter_rows, rows[0][0])

    async def _expire_counts(self, context: CallContext, limit: int) -> int:
        statement = context.table.statements.counters_expire
        [(deleted,)] = await context.rows(statement, context.now, COUNTS_RETENTION, limit)
        return int(deleted)
