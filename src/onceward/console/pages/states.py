"""The latest state of entities."""

from __future__ import annotations

import json

from starlette.responses import Response

from onceward.console.page import Page
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit

PAGE = Page("states", "Latest state", "Features", order=30)
LIMIT = 50
COLUMNS = (
    Column("entity", "Entity", "key"),
    Column("updated_at", "Updated", "time"),
    Column("size", "Bytes", "number"),
    Column("value", "State", "code"),
)
EMPTY = Empty(
    "No latest states in this scope",
    "A latest state keeps the newest event of each entity, and ignores older ones that arrive late.",
    'trucks = once.state("trucks")\ntrucks.apply("truck 7", Ordering(event_time), {"at": "Potsdam"})',
)
NO_SCOPE = Empty(
    "No scope with latest states is known",
    "Type a scope above, as `app/name`. Scopes are listed by themselves if the client has `counters=True`.",
    EMPTY.code,
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List the entities of a scope. Their states are sent only with `show=values`."""
    scopes = await visit.call(visit.admin.state_scopes())
    scope = visit.filter("scope") or (scopes[0] if scopes else "")
    shows = visit.filter("show") == "values"
    rows, cursor = [], None
    if scope:
        after = visit.filter("after") or None
        found = await visit.call(visit.admin.entities(scope, cursor=after, limit=LIMIT, values=shows))
        cursor = found.cursor
        rows = [
            {
                "entity": one.entity,
                "updated_at": one.updated_at,
                "size": one.value.size,
                "value": one.value.problem or json.dumps(one.value.value, ensure_ascii=False) if shows else "hidden",
            }
            for one in found.rows
        ]
    now = await visit.store_time()
    table = Table("entities", COLUMNS, rows, EMPTY if scope else NO_SCOPE, next=cursor, now=now)
    return visit.table("states.html", table, scopes=scopes, scope=scope, shows=shows, intro="")
