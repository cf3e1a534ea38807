"""Failure groups: failures with one exception type, raised in one function."""

from __future__ import annotations

from msgspec.structs import asdict
from starlette.responses import Response

from onceward.console.page import Page
from onceward.console.pages.keys import COLUMNS, key_rows
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit

PAGE = Page("failures", "Failures", "Work", order=30)
LISTED = 100  # records of a group on its page; JSON and CSV have all of them
EMPTY = Empty(
    "Nothing has failed",
    "Failed work is grouped here by its exception type and by the function of your application that raised it.",
)
GROUP_COLUMNS = (
    Column("error_type", "Error", "key", link="href"),
    Column("count", "Records", "number"),
    Column("final", "Not retried", "number"),
    Column("frame", "Raised in", "code"),
    Column("first_seen", "First seen", "time", narrow=False),
    Column("last_seen", "Last seen", "time"),
    Column("sample", "Latest message", narrow=False),
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List the groups, the largest first."""
    found = await visit.call(visit.admin.failures())
    rows = [
        {
            **asdict(one),
            "error_type": one.error_type or "(no type)",
            "sample": one.sample.error,
            "href": visit.url(f"failures/{one.id}"),
        }
        for one in found.groups
    ]
    table = Table("failure_groups", GROUP_COLUMNS, rows, EMPTY, now=found.now)
    return visit.table("failures.html", table, found=found)


@PAGE.get("/{id}")
async def show_group(visit: Visit) -> Response:
    """Show one group and its records."""
    found = await visit.call(visit.admin.failures())
    group = next((one for one in found.groups if one.id == visit.path["id"]), None)
    if group is None:
        return visit.render("not_found.html", 404, reason="This group no longer has failures.")
    records = await visit.call(visit.admin.failure_group(group.id))
    shown = records if visit.filter("format") else records[:LISTED]
    table = Table("keys", COLUMNS, key_rows(visit, shown), EMPTY, now=found.now)
    return visit.table("failure_group.html", table, group=group, hidden=len(records) - len(shown))
