"""The list of keys, with filters in the address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from onceward.administration import ListingFilter
from onceward.administration.filter_text import filter_from_text
from onceward.administration.model import KeyRow
from onceward.console.page import Page
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit, whole_number
from onceward.protocol.listing import WORK_STATES
from onceward.protocol.record import RecordState

PAGE = Page("keys", "Keys", "Work", order=10)
FILTERS = ("scope", "tenant", "state", "prefix", "id", "note", "error_type", "since", "before")
FIELDS = (
    "key", "scope", "tenant", "attempt", "token", "claimed_at", "updated_at", "owner", "error_type", "error",
    "error_frame", "note", "id",
)  # fmt: skip
PAGE_SIZE = 50
MAX_PAGE_SIZE = 1000
EMPTY = Empty(
    "No keys are stored yet",
    "Each piece of work that runs under a key leaves one record here. Decorate a function, call it, and reload.",
    '@once(key="charge:{order_id}")\ndef charge(order_id: str) -> Receipt: ...',
)
NO_MATCH = Empty(
    "No key matches", "Remove a filter, or check its spelling. A key is found by the beginning of its text."
)
COLUMNS = (
    Column("state", "State", "state"),
    Column("key", "Key", "key", link="href"),
    Column("scope", "Scope", "scope"),
    Column("attempt", "Attempt", "number"),
    Column("updated_at", "Updated", "time"),
    Column("owner", "Owner", "code", narrow=False),
    Column("error_type", "Error", "code", narrow=False),
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List the keys that match the filters."""
    chosen = visit.filters(*FILTERS)
    wanted = filter_of(chosen)
    found = await visit.call(visit.admin.keys(wanted, cursor=visit.filter("after") or None, limit=page_size(visit)))
    is_filtered = any(chosen.values())
    table = Table(
        "keys",
        COLUMNS,
        key_rows(visit, found.rows),
        NO_MATCH if is_filtered else EMPTY,
        next=found.cursor,
        now=found.now,
        selectable="id" if visit.may("act") else "",
    )
    states = [("", "all states"), *((state.value, state.value) for state in (*WORK_STATES, RecordState.FREE))]
    return visit.table(
        "keys.html",
        table,
        chosen=chosen,
        scopes=await visit.call(visit.admin.scopes()),
        states=states,
        searched_back_to=found.searched_back_to if found.cursor else None,
        unreadable=found.unreadable,
        is_filtered=is_filtered,
    )


def page_size(visit: Visit) -> int:
    return min(max(whole_number(visit.filter("limit"), PAGE_SIZE), 1), MAX_PAGE_SIZE)


def key_rows(visit: Visit, rows: Iterable[KeyRow]) -> list[dict[str, Any]]:
    """Return rows for a table of keys."""
    return [key_row(visit, row) for row in rows]


def key_row(visit: Visit, row: KeyRow) -> dict[str, Any]:
    return {
        "state": row.standing,
        **{name: getattr(row, name) for name in FIELDS},
        "href": visit.url(f"keys/{row.id}"),
    }


def filter_of(chosen: Mapping[str, str]) -> ListingFilter:
    """Return the filter that the fields of an address or form ask for. Unknown fields are ignored."""
    return filter_from_text(**{name: chosen.get(name, "") for name in FILTERS})
