"""Schedules: their slots, what they run next, and actions: run now, pause, resume."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from onceward.administration.model import ScheduleRow
from onceward.console.page import Page
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit

PAGE = Page("schedules", "Schedules", "Features", order=20)
EMPTY = Empty(
    "No schedules are known",
    "Schedules are declared in your application. Start the console with it, and their slots are shown here: "
    "onceward console shop.jobs:once",
    '@once.schedule("0 3 * * *", tz="Europe/Berlin")\ndef nightly_report() -> None: ...',
)
COLUMNS = (
    Column("state", "State", "state"),
    Column("name", "Schedule", "key", link="href"),
    Column("pattern_text", "When"),
    Column("tz", "Time zone", narrow=False),
    Column("next_slot", "Next slot", "time"),
    Column("last_run", "Last run", "time"),
    Column("missed", "Missed", "number"),
)
SLOT_COLUMNS = (
    Column("slot", "Slot", "time"),
    Column("state", "State", "state"),
    Column("key", "Key", "key", link="href"),
    Column("attempt", "Attempt", "number"),
    Column("updated_at", "Updated", "time"),
    Column("error", "Error", narrow=False),
)
NO_RUNNER = Empty(
    "No runner has started this schedule", "Start one: onceward schedule MODULE:APP", "onceward schedule shop.jobs:once"
)
NO_SLOTS = Empty("No slot has been due yet", "A runner has started this schedule. This page lists its next slots.")


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List all schedules."""
    found = await visit.call(visit.admin.schedules())
    now = await visit.store_time()
    table = Table("schedules", COLUMNS, [schedule_row(visit, one) for one in found], EMPTY, now=now)
    return visit.table("list.html", table, intro="Each slot runs once, on any number of machines.")


def schedule_row(visit: Visit, one: ScheduleRow) -> dict[str, Any]:
    return {
        "state": one.standing,
        "name": one.name,
        "pattern": one.pattern,
        "pattern_text": one.pattern_text or one.pattern,
        "tz": one.tz,
        "next_slot": one.next_slot,
        "last_run": one.last_run.updated_at if one.last_run else None,
        "missed": one.missed,
        "href": visit.url(f"schedules/{one.name}") if one.declared else "",
    }


@PAGE.get("/{name:path}")
async def show_one(visit: Visit) -> Response:
    """Show the slots of one schedule."""
    detail = await visit.call(visit.admin.schedule(visit.path["name"]))
    if detail is None:
        return visit.render("not_found.html", 404, reason="The client of this console does not declare this schedule.")
    now = await visit.store_time()
    rows = [
        {
            "slot": slot,
            "state": record.standing if record else "not started",
            "key": record.key if record else "",
            "attempt": record.attempt if record else None,
            "updated_at": record.updated_at if record else None,
            "error": f"{record.error_type}: {record.error}" if record and record.error_type else "",
            "href": visit.url(f"keys/{record.id}") if record else "",
        }
        for slot, record in detail.slots
    ]
    table = Table("slots", SLOT_COLUMNS, rows, NO_SLOTS if detail.row.considered else NO_RUNNER, now=now)
    return visit.table("schedule.html", table, detail=detail, row=detail.row, state=detail.row.standing)


@PAGE.post("-action/{verb}")
async def act(visit: Visit) -> Response:
    """Run a schedule now, pause or resume it."""
    name, why = visit.form.get("name", ""), visit.form.get("why", "").strip()
    verb, page = visit.path["verb"], f"schedules/{visit.form.get('name', '')}"
    if not why:
        return visit.back(page, problem="a reason is needed for the audit trail; nothing was changed")
    if verb == "run":
        await visit.call(visit.admin.run_schedule_now(name, why=why))
        return visit.back(page, done=f"{name}: a runner will start it now")
    if verb == "pause":
        changed = await visit.call(visit.admin.pause_schedule(name, why=why))
        return visit.back(page, done=f"{name} is paused" if changed else f"{name} was already paused")
    if verb == "resume":
        changed = await visit.call(visit.admin.resume_schedule(name, why=why))
        return visit.back(page, done=f"{name} runs again" if changed else f"{name} was not paused")
    return visit.render("not_found.html", 404)
