"""Read counters from the store: totals for people, and the figures that the alert rules check."""

from __future__ import annotations

from onceward.engine.engine import Engine
from onceward.errors import ConfigurationError
from onceward.protocol.counters import HOUR, CounterTotals, add_up, oldest_kept_hour, operation_of
from onceward.protocol.operation_names import ALERT, LOCK
from onceward.protocol.ports import Store
from onceward.protocol.record import RecordState

from .record_figures import SEARCH, record_figures
from .rules import Figures
from .thresholds import Thresholds


async def stats(engine: Engine, span: int) -> CounterTotals:
    """Return the counters of the last `span` µs, in whole hours."""
    await engine.ready()
    return await read_totals(engine.store, span)


async def read_totals(store: Store, span: int | None = None) -> CounterTotals:
    """Return the totals of the last `span` µs; None means of all stored counters."""
    if store.counters is None:
        raise ConfigurationError(
            f"{store.name} does not support counters", hint="use sqlite:///…, postgresql://… or redis://…"
        )
    since = 0
    if span is not None:
        now = await store.counters.save_counts([], timeout=SEARCH)
        since = max(oldest_kept_hour(now), min((now - span) // HOUR + 1, now // HOUR))
    counted = await store.counters.read_counts(since, timeout=SEARCH)
    first = min((row.hour for row in counted.counter_rows), default=counted.now // HOUR)
    return add_up(counted, since or first)


async def figures(store: Store, thresholds: Thresholds) -> Figures:
    return Figures(await read_totals(store), await record_figures(store, thresholds))


async def operations_without_counters(store: Store, known: CounterTotals) -> list[str]:
    """Return the operations that have records, but no stored counters.

    Locks and alerts are excluded: locks have no counters, and alerts are our own operations.
    """
    records = await store.counts(timeout=SEARCH)
    found = {operation_of(scope) for scope, state in records if state is not RecordState.FREE}
    found -= set(known.by_operation().scopes)
    return sorted(scope for scope in found if scope.partition("/")[2] not in (LOCK, ALERT))
