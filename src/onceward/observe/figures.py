"""Read counters from the store: totals for people, and the figures that the alert rules check."""

from __future__ import annotations

from collections import Counter

from onceward.engine.engine import Engine
from onceward.engine.lock_record import is_lock
from onceward.errors import ConfigurationError
from onceward.protocol.counters import HOUR, CounterTotals, add_up, oldest_kept_hour, operation_of
from onceward.protocol.operation_names import ALERT, LOCK
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import RecordState

from .rules import Broken, Figures, Thresholds, check

SEARCH = 60.0  # seconds; scans many records, for an operator
PAGE = 200  # records per page: each may have a result of a megabyte


async def stats(engine: Engine, span: int) -> CounterTotals:
    """Return the counters of the last `span` µs, in whole hours."""
    await engine.ready()
    return await read_totals(engine.store, span)


async def broken_rules(engine: Engine, thresholds: Thresholds) -> list[Broken]:
    await engine.ready()
    return check(await figures(engine.store, thresholds), thresholds)


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
    return Figures(await read_totals(store), await old_pending(store, thresholds.old_pending_age))


async def old_pending(store: Store, age: int, timeout: float = SEARCH) -> dict[str, int]:
    """Return how many records were claimed longer ago than `age` and are still PENDING, by operation.

    Locks are not counted: they may be held for long on purpose.
    """
    found: Counter[str] = Counter()
    cursor = None
    while True:
        page = await store.scan(Filter(states=(RecordState.PENDING,)), cursor=cursor, limit=PAGE, timeout=timeout)
        found.update(
            operation_of(record.scope)
            for record in page.records
            if record.claimed_at < page.now - age and not is_lock(record)
        )
        cursor = page.cursor
        if cursor is None:
            return dict(found)


async def operations_without_counters(store: Store, known: CounterTotals) -> list[str]:
    """Return the operations that have records, but no stored counters.

    Locks and alerts are excluded: locks have no counters, and alerts are our own operations.
    """
    records = await store.counts(timeout=SEARCH)
    found = {operation_of(scope) for scope, state in records if state is not RecordState.FREE}
    found -= set(known.by_operation().scopes)
    return sorted(scope for scope in found if scope.partition("/")[2] not in (LOCK, ALERT))
