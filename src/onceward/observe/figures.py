"""Looking at what was counted: sums for people, and the rules that tell when somebody should look."""

from __future__ import annotations

from collections import Counter

from onceward.engine.engine import Engine
from onceward.engine.lock_record import is_lock
from onceward.errors import ConfigurationError
from onceward.protocol.capabilities import KeepsCounters
from onceward.protocol.counters import HOUR, CounterTotals, add_up, oldest_kept_hour, operation_of
from onceward.protocol.operation_names import ALERT, LOCK
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import RecordState

from .rules import Broken, Figures, Thresholds, check

SEARCH = 60.0  # seconds; a look at many records, for a person
PAGE = 200  # records at a time: each may carry a result of a megabyte


async def stats(engine: Engine, span: int) -> CounterTotals:
    """What was counted in the last so many µs, in whole hours."""
    await engine.ready()
    return await tally(engine.store, span)


async def broken_rules(engine: Engine, thresholds: Thresholds) -> list[Broken]:
    await engine.ready()
    return check(await figures(engine.store, thresholds), thresholds)


async def tally(store: Store, span: int | None = None) -> CounterTotals:
    """Of the last so many µs; None: of all that is kept."""
    if not isinstance(store, KeepsCounters):
        raise ConfigurationError(f"{store.name} keeps no counters", hint="use sqlite:///…, postgresql://… or redis://…")
    since = 0
    if span is not None:
        now = await store.save_counts([], timeout=SEARCH)
        since = max(oldest_kept_hour(now), min((now - span) // HOUR + 1, now // HOUR))
    counted = await store.read_counts(since, timeout=SEARCH)
    first = min((sheet.hour for sheet in counted.sheets), default=counted.now // HOUR)
    return add_up(counted, since or first)


async def figures(store: Store, thresholds: Thresholds) -> Figures:
    return Figures(await tally(store), await old_pending(store, thresholds.old_pending_age))


async def old_pending(store: Store, age: int, timeout: float = SEARCH) -> dict[str, int]:
    """How many records were claimed longer ago than this and are PENDING still, by operation.

    Locks are left out: to be held for long may be what they are for.
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


async def uncounted(store: Store, known: CounterTotals) -> list[str]:
    """Operations that have records, and of which nothing was counted as long as counters are kept.

    Locks and alerts are left out: nobody counts the former, and the latter are our own.
    """
    records = await store.counts(timeout=SEARCH)
    found = {operation_of(scope) for scope, state in records if state is not RecordState.FREE}
    found -= set(known.by_operation().scopes)
    return sorted(scope for scope in found if scope.partition("/")[2] not in (LOCK, ALERT))
