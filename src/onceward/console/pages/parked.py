"""The queue of decisions: parked records, with what is known about each."""

from __future__ import annotations

from starlette.responses import Response

from onceward.administration.actions import DESCRIPTIONS
from onceward.console.page import Page
from onceward.console.pages.key import LABELS
from onceward.console.pages.keys import COLUMNS, key_row
from onceward.console.table import Empty, Table
from onceward.console.visit import Visit

PAGE = Page("parked", "Parked", "Work", order=20)
LIMIT = 20
EMPTY = Empty(
    "Nothing waits for a decision",
    "A record is parked if a worker died and it is unknown whether the effect happened. "
    'With after_crash="park" such work waits here, and nothing runs twice.',
    '@once(key="payout:{id}", after_crash="park")\ndef pay_out(id: str) -> str: ...',
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List the parked records, the latest first."""
    found = await visit.call(visit.admin.parked(cursor=visit.filter("after") or None, limit=LIMIT))
    rows = [{**key_row(visit, one.row), "explanation": one.explanation} for one in found.rows]
    table = Table("parked", COLUMNS, rows, EMPTY, next=found.cursor, now=found.now)
    return visit.table("parked.html", table, found=found, labels=LABELS, descriptions=DESCRIPTIONS)
