"""The search box: an id, a key, or the beginning of a key."""

from __future__ import annotations

import re

from starlette.responses import RedirectResponse, Response

from onceward.administration import ListingFilter
from onceward.console.page import Page
from onceward.console.pages.keys import COLUMNS, key_rows
from onceward.console.table import Empty, Table
from onceward.console.visit import Visit

PAGE = Page("find", "Find")
LIMIT = 50
SHORT_ID = re.compile("(id:)?[0-9a-f]{6,64}")
"""The beginning of an id, as the command shows it."""

EMPTY = Empty(
    "Nothing was found",
    "Type a record id, a key, or the beginning of a key. A key that is not exact is searched among the latest records; "
    "the page Keys has more filters.",
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """Go to the key if there is only one, or list what was found."""
    wanted = visit.filter("q")
    found = await visit.call(visit.admin.find(wanted, limit=LIMIT)) if wanted else []
    if not found and SHORT_ID.fullmatch(wanted):
        page = await visit.call(visit.admin.keys(ListingFilter(id=wanted.removeprefix("id:")), limit=LIMIT))
        found = page.rows
    exact = [one for one in found if one.key == wanted] or found
    if len(exact) == 1 and not visit.filter("format"):
        return RedirectResponse(visit.url(f"keys/{exact[0].id}"), 303)
    now = await visit.store_time()
    return visit.table("list.html", Table("keys", COLUMNS, key_rows(visit, found), EMPTY, now=now), intro="")
