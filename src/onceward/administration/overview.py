"""The figures of the first page: at most ten queries, and none of them visits all records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from onceward.observe.record_figures import RecordCounter, is_final_failure
from onceward.observe.rules import RULES, Broken, Figures, check, todo_text
from onceward.observe.thresholds import Thresholds
from onceward.protocol.counters import COUNTER_NAMES, HOUR, CounterTotals, replay_rate
from onceward.protocol.listing import ListingFilter
from onceward.protocol.record import Record, RecordState
from onceward.protocol.transitions import Row, row_of

from . import listing
from .model import Capped, HourFigures, Overview, RuleRow, ScheduleRow, ScopeFigures
from .record_view import key_row
from .schedules import schedule_rows, visible_schedules
from .times import time_of
from .totals import RULE_HOURS, totals_of

if TYPE_CHECKING:
    from .admin import Admin

MAX_COUNTED: Final = 10_000
"""Unfinished records are counted up to this number: beyond it, the exact number does not matter."""

MAX_READ: Final = 1_000
"""Records of each unfinished state that are read, the latest ones."""


class Unfinished(Struct, frozen=True):
    """The latest records of each unfinished state, and whether there are more."""

    records: dict[RecordState, list[Record]]
    more: dict[RecordState, bool]
    oldest_pending: tuple[Record, int] | None
    now: int


async def read_overview(admin: Admin, hours: int) -> Overview:
    """Return the overview. Queries: 2 for counters, 4 for unfinished records, 1 for counts, 1 for schedules."""
    totals = await totals_of(admin, max(hours, RULE_HOURS))
    found = await read_unfinished(admin)
    if admin.visible.everything:
        states = await listing.count_unfinished(admin.store, MAX_COUNTED)
    else:  # the index has no scopes: count the records that were read
        states = {state: Capped(len(records), found.more[state]) for state, records in found.records.items()}
    rows, cursors = await schedule_rows(admin.store, visible_schedules(admin), totals)
    broken = broken_rules(totals, found, cursors, admin.thresholds)
    return overview(totals, found, states, hours=hours, schedules=rows, broken=broken)


async def read_rules(admin: Admin) -> list[RuleRow]:
    """Return every rule, and where it is broken."""
    totals = await totals_of(admin, RULE_HOURS)
    found = await read_unfinished(admin)
    _, cursors = await schedule_rows(admin.store, visible_schedules(admin), totals)
    return rule_rows(broken_rules(totals, found, cursors, admin.thresholds), admin.thresholds)


async def read_unfinished(admin: Admin) -> Unfinished:
    """Read the latest unfinished records: one query per state, and one for the oldest PENDING record."""
    records: dict[RecordState, list[Record]] = {}
    more: dict[RecordState, bool] = {}
    now = 0
    for state in (RecordState.PENDING, RecordState.FAILED, RecordState.PARKED):
        page = await listing.visible_page(admin, ListingFilter(states=(state,)), limit=MAX_READ)
        records[state], more[state], now = page.records, page.cursor is not None, page.now
    everywhere = ListingFilter(scopes=admin.visible.scopes, tenants=admin.visible.tenants)
    oldest = await listing.oldest_pending(admin.store, everywhere) if records[RecordState.PENDING] else None
    return Unfinished(records, more, oldest, now)


def broken_rules(
    totals: CounterTotals | None,
    found: Unfinished,
    cursors: Sequence[tuple[Record, int]],
    thresholds: Thresholds,
) -> list[Broken]:
    """Return the broken rules. Without counters, only those about records."""
    tally = totals if totals is not None else CounterTotals(found.now, found.now // HOUR, {})
    counter = RecordCounter(thresholds)
    records = {one.id: one for of_state in found.records.values() for one in of_state}
    if found.oldest_pending is not None:
        records[found.oldest_pending[0].id] = found.oldest_pending[0]
    for record in records.values():
        counter.add(record, found.now)
    return check(Figures(tally, counter.figures(cursors)), thresholds)


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
