"""Dead letters: messages that could not be processed, where they are known."""

from __future__ import annotations

from starlette.responses import Response

from onceward.console.page import Page
from onceward.console.pages.keys import COLUMNS, key_rows
from onceward.console.table import Empty, Table
from onceward.console.visit import Visit

PAGE = Page("dead-letters", "Dead letters", "Features", order=40)
EMPTY = Empty(
    "No message was parked",
    "A message that cannot be processed is moved to the dead letter queue of its broker. "
    "If the queue has none, the message is described by a parked record, which is listed here.",
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List parked messages, and count those that were moved to dead letter queues."""
    found = await visit.call(visit.admin.dead_letters(cursor=visit.filter("after") or None))
    now = await visit.store_time()
    table = Table("dead_letters", COLUMNS, key_rows(visit, found.parked), EMPTY, next=found.cursor, now=now)
    return visit.table("dead_letters.html", table, moved=found.moved, intro="")
