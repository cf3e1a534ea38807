"""The figures of the first page: at most ten queries, and none of them visits all records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from onceward.engine.lock_record import is_lock
from onceward.observe.record_figures import is_final_failure, stuck_schedules
from onceward.observe.rules import RULES, Broken, Figures, RecordFigures, check, todo_text
from onceward.observe.thresholds import Thresholds
from onceward.protocol.counters import COUNTER_NAMES, HOUR, CounterTotals, add_up, operation_of, replay_rate
from onceward.protocol.listing import ListingFilter
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.transitions import Row, row_of

from . import listing
from .model import Capped, HourFigures, Overview, RuleRow, ScheduleRow, ScopeFigures
from .record_view import key_row
from .times import time_of
from .visible import Visible

MAX_COUNTED: Final = 10_000
"""Unfinished records are counted up to this number: beyond it, the exact number does not matter."""

MAX_READ: Final = 1_000
"""Records of each unfinished state that are read, the latest ones."""

DAY: Final = 24
RULE_HOURS: Final = 28 * DAY
TIMEOUT: Final = 30.0


class Unfinished(Struct, frozen=True):
    """The latest records of each unfinished state, and whether there are more."""

    records: dict[RecordState, list[Record]]
    more: dict[RecordState, bool]
    oldest_pending: tuple[Record, int] | None
    now: int


async def read_unfinished(store: Store, visible: Visible) -> Unfinished:
    """Read the latest unfinished records: one query per state, and one for the oldest PENDING record."""
    records: dict[RecordState, list[Record]] = {}
    more: dict[RecordState, bool] = {}
    now = 0
    everywhere = ListingFilter(scopes=visible.scopes, tenants=visible.tenants)
    for state in (RecordState.PENDING, RecordState.FAILED, RecordState.PARKED):
        wanted = ListingFilter(states=(state,), scopes=visible.scopes, tenants=visible.tenants)
        page = await listing.newest(store, wanted, limit=MAX_READ)
        records[state], more[state], now = page.records, page.cursor is not None, page.now
    oldest = await listing.oldest_pending(store, everywhere) if records[RecordState.PENDING] else None
    return Unfinished(records, more, oldest, now)


async def read_totals(store: Store, hours: int) -> CounterTotals | None:
    """Return the counters of the last hours; None if the store keeps none."""
    if store.counters is None:
        return None
    now = await store.counters.save_counts([], timeout=TIMEOUT)
    since = now // HOUR - hours + 1
    counted = await store.counters.read_counts(since, timeout=TIMEOUT)
    return add_up(counted, since)


def visible_totals(totals: CounterTotals, visible: Visible) -> CounterTotals:
    """Return the counters of the visible scopes."""
    if visible.everything:
        return totals
    hours = {
        hour: {scope: cell for scope, cell in counts.items() if visible.includes(scope)}
        for hour, counts in totals.hours.items()
    }
    return CounterTotals(totals.now, totals.since, hours)


def record_figures(found: Unfinished, cursors: Sequence[tuple[Record, int]], thresholds: Thresholds) -> RecordFigures:
    """Return the figures for the rules, from the records that were read."""
    old_pending: Counter[str] = Counter()
    running: set[str] = set()
    pending = {one.id: one for one in found.records[RecordState.PENDING]}
    if found.oldest_pending is not None:
        pending[found.oldest_pending[0].id] = found.oldest_pending[0]
    for record in pending.values():
        if not is_lock(record):
            old_pending[operation_of(record.scope)] += record.claimed_at < found.now - thresholds.old_pending_age
            if row_of(record, found.now) is Row.PENDING_LIVE:
                running.add(record.scope)
    parked = Counter(operation_of(one.scope) for one in found.records[RecordState.PARKED])
    failed = Counter(
        operation_of(one.scope)
        for one in found.records[RecordState.FAILED]
        if one.updated_at > found.now - DAY * HOUR and is_final_failure(one, found.now)
    )
    stuck = stuck_schedules(cursors, running, thresholds.stuck_schedule_age)
    return RecordFigures(+old_pending, parked, failed, stuck)


def broken_rules(
    totals: CounterTotals | None,
    found: Unfinished,
    cursors: Sequence[tuple[Record, int]],
    thresholds: Thresholds,
) -> list[Broken]:
    """Return the broken rules. Without counters, only those about records."""
    tally = totals if totals is not None else CounterTotals(found.now, found.now // HOUR, {})
    return check(Figures(tally, record_figures(found, cursors, thresholds)), thresholds)


def rule_rows(broken: Sequence[Broken], thresholds: Thresholds) -> list[RuleRow]:
    """Return every rule, and where it is broken."""
    return [
        RuleRow(
            rule.name,
            todo_text(rule, thresholds, "SCOPE"),
            rule.by_counters,
            [one for one in broken if one.rule == rule.name],
        )
        for rule in RULES
    ]


def overview(
    totals: CounterTotals | None,
    found: Unfinished,
    states: dict[RecordState, Capped],
    *,
    hours: int,
    schedules: list[ScheduleRow],
    broken: list[Broken],
) -> Overview:
    """Return the figures of the last hours. `totals` may cover a longer time, for the rules."""
    now = found.now
    live = [one for one in found.records[RecordState.PENDING] if row_of(one, now) is Row.PENDING_LIVE]
    final = [one for one in found.records[RecordState.FAILED] if is_final_failure(one, now)]
    first = now // HOUR - hours + 1
    shown = CounterTotals(now, first, {} if totals is None else _since(totals, first))
    sums = _sums(shown, None)
    return Overview(
        now=time_of(now),
        since=time_of(first * HOUR),
        states=states,
        running=Capped(len(live), found.more[RecordState.PENDING]),
        failed_final=Capped(len(final), found.more[RecordState.FAILED]),
        oldest_pending=None if found.oldest_pending is None else key_row(*found.oldest_pending),
        totals=sums,
        replay_rate=_rate(sums),
        hours=_hours(shown, None),
        scopes=[_scope(shown, scope) for scope in shown.scopes],
        schedules=schedules,
        broken=broken,
        counters=bool(shown.hours),
        partial=any(found.more.values()),
    )


def _since(totals: CounterTotals, first: int) -> dict[int, dict[str, dict[str, int]]]:
    return {hour: counts for hour, counts in totals.hours.items() if first <= hour <= totals.latest}


def _sums(totals: CounterTotals, scope: str | None) -> dict[str, int]:
    sums = {name: totals.total(name, scope) for name in COUNTER_NAMES}
    return {name: number for name, number in sums.items() if number}


def _rate(sums: dict[str, int]) -> float | None:
    return replay_rate(sums.get("replayed", 0), sums.get("executed", 0) + sums.get("applied", 0))


def _hours(totals: CounterTotals, scope: str | None) -> list[HourFigures]:
    hours = []
    for hour in range(totals.since, totals.latest + 1):
        counts = {name: totals.at(hour, (name,), scope) for name in COUNTER_NAMES}
        hours.append(HourFigures(time_of(hour * HOUR), {name: number for name, number in counts.items() if number}))
    return hours


def _scope(totals: CounterTotals, scope: str) -> ScopeFigures:
    sums = _sums(totals, scope)
    return ScopeFigures(scope, sums, _rate(sums), _hours(totals, scope))
