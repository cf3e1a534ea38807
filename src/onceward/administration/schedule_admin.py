"""Read, pause and run the schedules that the client declares."""

from __future__ import annotations

from secrets import token_bytes
from typing import TYPE_CHECKING

from onceward.errors import ConfigurationError
from onceward.protocol.audit import signature
from onceward.schedules import operator_requests
from onceward.schedules.definition import Schedule

from . import figures, overview, schedules
from .model import ScheduleDetail, ScheduleRow

if TYPE_CHECKING:
    from .admin import Admin


async def rows(admin: Admin) -> list[ScheduleRow]:
    totals = await figures.totals_of(admin, overview.RULE_HOURS)
    found, _ = await schedules.schedule_rows(admin.store, schedules.visible_schedules(admin), totals)
    return found


async def detail(admin: Admin, name: str) -> ScheduleDetail | None:
    schedule = _named(admin, name)
    if schedule is None:
        return None
    [row], _ = await schedules.schedule_rows(admin.store, [schedule], None)
    return await schedules.schedule_detail(admin.store, schedule, row)


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
    return next((one for one in schedules.visible_schedules(admin) if one.name == name), None)


def _required(admin: Admin, name: str) -> Schedule:
    schedule = _named(admin, name)
    if schedule is None:
        raise ConfigurationError(
            f"no schedule {name!r} with a pattern is declared here", hint="pass the client that declares it"
        )
    return schedule
