"""The history of keys: one row per event, deleted with its record."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.history import MAX_EVENTS, HistoryEvent, column_values
from onceward.stores.sql_capabilities import SqlHistory, events_to_keep

from .maintenance import CallContext


class PostgresHistory(SqlHistory):
    """The history of `PostgresStore`."""

    async def _append_history(self, context: CallContext, events: Sequence[HistoryEvent]) -> int:
        statements = context.table.statements
        if events:
            async with context.transaction():
                rows = await context.rows(statements.history_lock, sorted({event.id for event in events}))
                kept = events_to_keep(events, rows)
                if kept:
                    columns = [list(column) for column in zip(*map(column_values, kept), strict=True)]
                    await context.rows(statements.history_append, *columns)
                    await context.rows(statements.history_trim, sorted({event.id for event in kept}), MAX_EVENTS)
        return await context.read_time()

    async def _read_history(self, context: CallContext, id: bytes, limit: int) -> list[HistoryEvent]:
        rows = await context.rows(context.table.statements.history_read, id, limit)
        return [HistoryEvent(*row) for row in reversed(rows)]
