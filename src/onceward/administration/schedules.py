"""Schedules: their cursors, slots and runs. Only a client that declares a schedule knows its pattern."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_bytes
from typing import TYPE_CHECKING, Final

from onceward.errors import ConfigurationError
from onceward.protocol.audit import signature
from onceward.protocol.counters import CounterTotals
from onceward.protocol.operation_names import SCHEDULE_PREFIX
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer
from onceward.protocol.transitions import Row, row_of
from onceward.schedules import operator_requests
from onceward.schedules.cursor import cursor_of
from onceward.schedules.definition import Schedule
from onceward.schedules.operator_requests import is_paused

from .cron_text import cron_text
from .model import KeyRow, ScheduleDetail, ScheduleRow
from .record_view import key_row
from .times import time_of
from .totals import RULE_HOURS, totals_of

if TYPE_CHECKING:
    from .admin import Admin

TIMEOUT: Final = 10.0
LAST_SLOTS: Final = 20
SLOTS_FOR_LAST_RUN: Final = 3  # a slot that is missed or not yet claimed has no record
NEXT_SLOTS: Final = 10
GRACES_UNTIL_OVERDUE: Final = 2


def visible_schedules(admin: Admin) -> list[Schedule]:
    """Return the visible schedules that the client has declared with a pattern."""
    declared = [one.schedule for _, one in sorted(admin.declared.items()) if one.schedule.timetable is not None]
    return [one for one in declared if admin.visible.includes(one.scope.text)]


async def schedule_rows(
    store: Store, schedules: Sequence[Schedule], totals: CounterTotals | None
) -> tuple[list[ScheduleRow], list[tuple[Record, int]]]:
    """Return all schedules, and the records of their cursors. Two store reads serve all declared schedules.

    The counters show which other schedules exist.
    """
    ids = [key.id for one in schedules for key in (*one.cursors, one.overlap_lock, one.pause)]
    answers = await store.read(ids, timeout=TIMEOUT) if ids else []
    last_runs = await _last_runs(store, schedules, answers[0].now) if answers else []
    rows: list[ScheduleRow] = []
    cursors: list[tuple[Record, int]] = []
    per_schedule = 4
    for number, schedule in enumerate(schedules):
        own = answers[number * per_schedule : (number + 1) * per_schedule]
        rows.append(_row(schedule, own, last_runs[number]))
        cursors += [
            (one.record, one.now)
            for one in own[:2]
            if one.record is not None and one.record.state is RecordState.COMPLETED
        ]
    known = {row.scope for row in rows}
    for scope in [] if totals is None else totals.scopes:
        name = schedule_name(scope)
        if name and scope not in known:
            rows.append(ScheduleRow(name=name, scope=scope))
    return rows, cursors


def schedule_name(scope: str) -> str:
    """Return the name of the schedule whose slots have this scope; "" if it is not the scope of a schedule."""
    operation = scope.partition("@")[0].partition("/")[2]
    return operation.removeprefix(SCHEDULE_PREFIX) if operation.startswith(SCHEDULE_PREFIX) else ""


async def _last_runs(store: Store, schedules: Sequence[Schedule], now: int) -> list[KeyRow | None]:
    """Return the latest run of each schedule; None if none of its last slots has a record."""
    slots = [last_slots(one, now, SLOTS_FOR_LAST_RUN) for one in schedules]
    ids = [schedule.key(slot).id for schedule, own in zip(schedules, slots, strict=True) for slot in own]
    answers = iter(await store.read(ids, timeout=TIMEOUT) if ids else ())
    found = [[next(answers) for _ in own] for own in slots]
    return [
        next((key_row(one.record, one.now) for one in own if one.record is not None), None)  # the latest slot is first
        for own in found
    ]


def _row(schedule: Schedule, answers: Sequence[Answer], last_run: KeyRow | None) -> ScheduleRow:
    first, second, lock, pause = answers
    now, cursor = first.now, cursor_of([first, second])
    considered = now if cursor is None else cursor.considered
    following = schedule.table.next(max(considered, now))
    waiting = schedule.table.next(considered)
    late = waiting is not None and waiting + GRACES_UNTIL_OVERDUE * schedule.slots.grace < now
    running = lock.record is not None and row_of(lock.record, now) is Row.PENDING_LIVE
    paused = is_paused(pause.record)
    return ScheduleRow(
        name=schedule.name,
        scope=schedule.scope.text,
        pattern=schedule.table.pattern.text,
        pattern_text=cron_text(schedule.table.pattern.text),
        tz=schedule.table.zone,
        overlap=schedule.slots.overlap,
        catch_up=schedule.slots.catch_up,
        next_slot=time_of(following),
        considered=None if cursor is None else time_of(cursor.considered),
        missed=0 if cursor is None else cursor.missed,
        overdue=late and not running and not paused,
        paused=paused,
        running=running,
        declared=True,
        last_run=last_run,
    )


async def schedule_detail(store: Store, schedule: Schedule, row: ScheduleRow) -> ScheduleDetail:
    """Return the latest slots with their records, and the next slots."""
    found = await store.read([key.id for key in schedule.cursors], timeout=TIMEOUT)
    answer, cursor = found[0], cursor_of(found)
    since = answer.now if cursor is None else cursor.since  # earlier slots were never due
    slots = last_slots(schedule, answer.now)
    answers = await store.read([schedule.key(slot).id for slot in slots], timeout=TIMEOUT) if slots else []
    pairs = [
        (time_of(slot), None if one.record is None else key_row(one.record, one.now))
        for slot, one in zip(slots, answers, strict=True)
        if slot > since or one.record is not None
    ]
    upcoming = []
    for slot in schedule.table.after(answer.now):
        upcoming.append(time_of(slot))
        if len(upcoming) == NEXT_SLOTS:
            break
    return ScheduleDetail(row, pairs, upcoming)


def last_slots(schedule: Schedule, now: int, limit: int = LAST_SLOTS) -> list[int]:
    """Return the latest slots up to now, the latest first."""
    slots: list[int] = []
    slot = schedule.table.latest(now)
    while slot is not None and len(slots) < limit:
        slots.append(slot)
        slot = schedule.table.latest(slot - 1)
    return slots


# ── called by `Admin` ──


async def rows(admin: Admin) -> list[ScheduleRow]:
    totals = await totals_of(admin, RULE_HOURS)
    found, _ = await schedule_rows(admin.store, visible_schedules(admin), totals)
    return found


async def detail(admin: Admin, name: str) -> ScheduleDetail | None:
    schedule = _named(admin, name)
    if schedule is None:
        return None
    [row], _ = await schedule_rows(admin.store, [schedule], None)
    return await schedule_detail(admin.store, schedule, row)


async def set_paused(admin: Admin, name: str, why: str, *, paused: bool) -> bool:
    schedule = _required(admin, name)
    signed = signature("pause" if paused else "resume", admin.who, why)
    if paused:
        return await operator_requests.pause(admin.store, schedule, token_bytes(16), signed)
    return await operator_requests.resume(admin.store, schedule, signed)


async def run_now(admin: Admin, name: str, why: str) -> str:
    schedule = _required(admin, name)
    slot = await operator_requests.request_run(
        admin.store, schedule, token_bytes(16), signature("run-now", admin.who, why)
    )
    return schedule.key(slot).id.hex()


def _named(admin: Admin, name: str) -> Schedule | None:
    return next((one for one in visible_schedules(admin) if one.name == name), None)


def _required(admin: Admin, name: str) -> Schedule:
    schedule = _named(admin, name)
    if schedule is None:
        raise ConfigurationError(
            f"no schedule {name!r} with a pattern is declared here", hint="pass the client that declares it"
        )
    return schedule
