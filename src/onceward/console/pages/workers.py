"""Workers that hold a lease now."""

from __future__ import annotations

from starlette.responses import Response

from onceward.console.page import Page
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit

PAGE = Page("workers", "Workers", "System", order=10)
COLUMNS = (
    Column("owner", "Worker", "code"),
    Column("running", "Running", "number"),
    Column("renewed_at", "Last heartbeat", "time"),
    Column("oldest", "Oldest work", "key", link="href"),
    Column("claimed_at", "Since", "time"),
)
EMPTY = Empty("No worker holds a lease", "A worker is listed while it processes a key. Idle workers hold nothing.")


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List the workers."""
    found = await visit.call(visit.admin.workers())
    rows = [
        {
            "owner": one.owner,
            "running": one.running,
            "renewed_at": one.renewed_at,
            "oldest": one.oldest.key,
            "claimed_at": one.oldest.claimed_at,
            "href": visit.url(f"keys/{one.oldest.id}"),
        }
        for one in found.rows
    ]
    intro = "Workers that hold a lease now. Idle workers are not known to the store."
    return visit.table("list.html", Table("workers", COLUMNS, rows, EMPTY, now=found.now), intro=intro)
