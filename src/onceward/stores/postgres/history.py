"""The history of keys: one row per event, deleted with its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from onceward.protocol.capabilities import History
from onceward.protocol.history import MAX_EVENTS, HistoryEvent, belongs_to, column_values
from onceward.protocol.record import RecordState
from onceward.stores.sql import STATES

from .maintenance import CallContext
from .statements import NOW


class _Lifetime(NamedTuple):
    state: RecordState
    token: int
    cycle: int


class PostgresHistory:
    """The history of `PostgresStore`."""

    _run_until: Callable[..., Coroutine[Any, Any, Any]]

    @property
    def history(self) -> History:
        return self

    async def append_history(self, events: Sequence[HistoryEvent], *, timeout: float) -> int:
        now: int = await self._run_until(time.monotonic() + timeout, _append, events)
        return now

    async def read_history(self, id: bytes, *, limit: int, timeout: float) -> list[HistoryEvent]:
        found: list[HistoryEvent] = await self._run_until(time.monotonic() + timeout, _read, id, limit)
        return found


async def _append(context: CallContext, events: Sequence[HistoryEvent]) -> int:
    statements = context.table.statements
    if events:
        async with context.transaction():
            rows = await context.rows(statements.history_lock, sorted({event.id for event in events}))
            records = {
                bytes(id): _Lifetime(STATES.get(state, RecordState.PENDING), token, cycle)
                for id, state, token, cycle in rows
            }
            kept = [event for event in events if belongs_to(event, records.get(event.id))]
            if kept:
                columns = [list(column) for column in zip(*map(column_values, kept), strict=True)]
                await context.rows(statements.history_append, *columns)
                await context.rows(statements.history_trim, sorted({event.id for event in kept}), MAX_EVENTS)
    [(now,)] = await context.connection.query(f"SELECT coalesce($1::bigint, {NOW})", context.deadline, context.now)
    return int(now)


async def _read(context: CallContext, id: bytes, limit: int) -> list[HistoryEvent]:
    rows = await context.rows(context.table.statements.history_read, id, limit)
    return [HistoryEvent(bytes(row[0]), *row[1:]) for row in reversed(rows)]
