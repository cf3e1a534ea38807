"""The first page: what happened in the last day, and what needs a person. Refreshed while it is visible."""

from __future__ import annotations

from starlette.responses import Response

from onceward.administration.model import Overview
from onceward.console.page import Page
from onceward.console.pages.keys import COLUMNS, key_rows
from onceward.console.pages.keys import EMPTY as NO_KEYS
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit

PAGE = Page("overview", "Overview", "Work", order=0)
LATEST = 10
SERIES = ("executed", "replayed", "running", "failed", "parked", "mismatch", "unknown", "applied", "stale")
EMPTY = Empty(
    "No outcomes are counted yet",
    "The store holds counts only for clients that are created with counters=True. "
    "Pass it to the client of your workers, and the last day appears here.",
    'once = Once("sqlite:///onceward.db", counters=True)',
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """Show the figures. `format=json` returns them by scope."""
    overview = await visit.call(visit.admin.overview())
    latest = None if overview.counters else await visit.call(visit.admin.keys(limit=LATEST))
    return visit.table(
        "overview.html",
        scopes_table(overview),
        overview=overview,
        chart=chart(overview),
        latest=latest and Table("keys", COLUMNS, key_rows(visit, latest.rows), NO_KEYS, now=latest.now),
    )


def scopes_table(overview: Overview) -> Table:
    rows = [
        {
            "scope": one.scope,
            "executed": one.counts.get("executed", 0) + one.counts.get("applied", 0),
            "replayed": one.counts.get("replayed", 0),
            "replay_rate": one.replay_rate,
            "failed": one.counts.get("failed", 0),
            "parked": one.counts.get("parked", 0),
            "mismatch": one.counts.get("mismatch", 0),
            "hours": [sum(hour.counts.get(name, 0) for name in SERIES) for hour in one.hours],
        }
        for one in overview.scopes
    ]
    columns = [
        Column("scope", "Scope", "scope"),
        Column("executed", "Executed", "number"),
        Column("replayed", "Replayed", "number"),
        Column("replay_rate", "Replay rate", "share"),
        Column("failed", "Failed", "number"),
        Column("parked", "Parked", "number"),
        Column("mismatch", "Mismatch", "number"),
    ]
    extra = {"totals": overview.totals, "replay_rate": overview.replay_rate, "now": overview.now.isoformat()}
    return Table("scopes", columns, rows, EMPTY, now=overview.now, extra=extra)


def chart(overview: Overview) -> tuple[list[str], dict[str, list[int]]]:
    """Return the labels of the hours, and the counts of each outcome that occurred."""
    labels = [f"{hour.hour:%H:%M}" for hour in overview.hours]
    series = {name: [hour.counts.get(name, 0) for hour in overview.hours] for name in SERIES}
    return labels, {name: values for name, values in series.items() if any(values)}
