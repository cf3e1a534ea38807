"""The rules of `onceward check`: their limits, and where they are broken."""

from __future__ import annotations

from starlette.responses import Response

from onceward.console.page import Page
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit

PAGE = Page("rules", "Rules", "System", order=20)
COLUMNS = (
    Column("state", "State", "state"),
    Column("rule", "Rule", "code"),
    Column("broken", "Where it is broken"),
    Column("todo", "What to do", "prose"),
    Column("source", "Reads", narrow=False),
)
EMPTY = Empty("There are no rules", "Rules have limits; `onceward check` alerts when one is broken.")


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List all rules, the broken ones first."""
    found = await visit.call(visit.admin.rules())
    rows = [
        {
            "state": "broken" if one.broken else "ok",
            "rule": one.name,
            "broken": "; ".join(
                f"{broken.scope}: {broken.said}" if broken.scope else broken.said for broken in one.broken
            ),
            "todo": one.todo,
            "source": "counters" if one.by_counters else "records",
            "runbook": one.broken[0].runbook if one.broken else "",
        }
        for one in sorted(found, key=lambda rule: not rule.broken)
    ]
    intro = "The same rules as those of `onceward check`. Rules that read counters need clients with counters=True."
    return visit.table("list.html", Table("rules", COLUMNS, rows, EMPTY), intro=intro)
