"""Imports of files into people, and how far they have come."""

from __future__ import annotations

from starlette.responses import Response

from onceward.console.page import Page
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit

PAGE = Page("imports", "Imports", "Features", order=60, needs_all=True)
COLUMNS = (
    Column("state", "State", "state"),
    Column("name", "File", "code"),
    Column("done", "Rows done", "number"),
    Column("created", "Created", "number"),
    Column("updated", "Updated", "number"),
    Column("skipped", "Skipped", "number"),
    Column("rejected", "Rejected", "number"),
    Column("to_review", "To review", "number"),
    Column("rejects", "Reject file", "code", narrow=False),
)
EMPTY = Empty(
    "No file was imported",
    "Imports into a database of people are listed here, if the console knows that database.",
    "onceward import contacts.csv --into sqlite:///people.db",
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List the imports, by name."""
    found = await visit.call_people(visit.admin.imports())
    rows = [{column.name: getattr(one, column.name) for column in COLUMNS} for one in found]
    return visit.table("list.html", Table("imports", COLUMNS, rows, EMPTY), intro="")
