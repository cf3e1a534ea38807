"""Sagas and the progress of their steps."""

from __future__ import annotations

from starlette.responses import Response

from onceward.console.page import Page
from onceward.console.pages.keys import filter_of
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit

PAGE = Page("sagas", "Sagas", "Features", order=10)
LIMIT = 50
EMPTY = Empty(
    "No unfinished sagas",
    "A saga runs several steps. If one fails, the saga undoes the earlier ones. Unfinished sagas are listed here.",
    'booking = once.saga("booking", Step("reserve", reserve, undo=free), Step("charge", charge, kind="pivot"))',
)
NO_MATCH = Empty("No saga is in this state", "Choose another state above.")
COLUMNS = (
    Column("state", "State", "state"),
    Column("key", "Saga", "key", link="href"),
    Column("scope", "Scope", "scope", narrow=False),
    Column("direction", "Direction"),
    Column("steps", "Steps", "code"),
    Column("blocked_by", "Blocked by", "code"),
    Column("error", "Error", narrow=False),
    Column("updated_at", "Updated", "time"),
)
SIGNS = {"done": "✓", "not done": "✗", "begun": "…", "undoing": "↶", "undone": "↺"}


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List unfinished sagas; with `state=COMPLETED`, the completed ones."""
    chosen = visit.filters("state", "scope", "prefix")
    found = await visit.call(visit.admin.sagas(filter_of(chosen), cursor=visit.filter("after") or None, limit=LIMIT))
    rows = [
        {
            "state": one.row.standing,
            "key": one.row.key,
            "scope": one.row.scope,
            "direction": "undone" if one.undone else one.direction,
            "steps": " → ".join(f"{SIGNS.get(step.progress, '·')} {step.name}" for step in one.steps),
            "blocked_by": one.blocked_by,
            "error": f"{one.error_type}: {one.error}" if one.error_type else "",
            "updated_at": one.row.updated_at,
            "id": one.row.id,
            "href": visit.url(f"keys/{one.row.id}"),
        }
        for one in found.rows
    ]
    table = Table("sagas", COLUMNS, rows, NO_MATCH if any(chosen.values()) else EMPTY, next=found.cursor, now=found.now)
    tabs = [("", "Unfinished"), ("PARKED", "Parked"), ("FAILED", "Failed"), ("COMPLETED", "Completed")]
    intro = "✓ done · … begun · ✗ not done · ↶ being undone · ↺ undone"
    return visit.table("tabbed_list.html", table, tabs=tabs, current=chosen["state"], tab="state", intro=intro)
