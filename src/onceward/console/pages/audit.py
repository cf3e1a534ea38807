"""The audit trail: who changed a record by hand, and why."""

from __future__ import annotations

from starlette.responses import Response

from onceward.console.page import Page
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit

PAGE = Page("audit", "Audit trail", "System", order=30)
LIMIT = 200
COLUMNS = (
    Column("at", "When", "time"),
    Column("verb", "What"),
    Column("who", "Who"),
    Column("why", "Why"),
    Column("key", "Key", "key", link="href"),
    Column("change", "Change", "code"),
    Column("scope", "Scope", "scope", narrow=False),
)
EMPTY = Empty(
    "Nobody has changed a record by hand",
    "Each change by the console, the command or a program that gives a reason leaves an entry here.",
    'onceward retry charge:42 --why "the card was unblocked"',
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List the latest entries."""
    within = visit.filter("within") or None
    entries = await visit.call(visit.admin.audit(within=within, limit=LIMIT))
    rows = [
        {
            "at": one.when,
            "verb": f"{one.verb} ({one.detail})" if one.detail else one.verb,
            "who": one.who,
            "why": one.why,
            "key": one.key or (f"{one.count:,} records" if one.count != 1 else ""),
            "change": f"{one.state_before} → {one.state_after}" if one.state_before else "",
            "scope": one.scope,
            "href": visit.url(f"keys/{one.id.hex()}") if one.id else "",
        }
        for one in entries
    ]
    now = await visit.store_time()
    tabs = [("", "All"), ("24h", "Last day"), ("7d", "Last week")]
    table = Table("audit", COLUMNS, rows, EMPTY, now=now)
    return visit.table("tabbed_list.html", table, tabs=tabs, current=within or "", tab="within", intro="")
