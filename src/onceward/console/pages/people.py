"""Pairs that may be one person: the questions that an operator answers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from starlette.responses import Response

from onceward.console.page import Page
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit
from onceward.errors import ConfigurationError

if TYPE_CHECKING:  # an optional dependency
    from onceward.people.review import Review

PAGE = Page("people", "People review", "Features", order=50, needs_all=True)
LIMIT = 20
COLUMNS = (
    Column("one", "One", "code"),
    Column("other", "Other", "code"),
    Column("confidence", "Confidence", "share"),
    Column("source", "Source"),
    Column("asked_at", "Asked", "time"),
)
EMPTY = Empty(
    "No pair needs an answer",
    "Records of people that are similar, but not certainly the same, are listed here. "
    "Pass the database of people to the console: Console(once, people=people), or --people on the command line.",
    "onceward console --people sqlite:///people.db",
)


@PAGE.get()
async def show(visit: Visit) -> Response:
    """List the open questions, the likeliest first."""
    found = await visit.call_people(visit.admin.reviews(LIMIT))
    rows = [
        {
            "one": one.one.id,
            "other": one.other.id,
            "confidence": round(one.confidence, 3),
            "source": one.source,
            "asked_at": one.asked_at,
            "seen": seen_of(one),
            "reason": one.reason,
            "fields": {each.name: [each.one, each.other] for each in one.fields()},
            "evidence": [
                {"field": each.name, "level": each.level, "weight": each.weight}
                for each in one.fields()
                if each.level is not None
            ],
        }
        for one in found
    ]
    table = Table("reviews", COLUMNS, rows, EMPTY)
    return visit.table("people.html", table, reviews=found, seen_of=seen_of)


def seen_of(review: Review) -> str:
    """Return when both people last changed: an answer is about the people that it was given for."""
    return f"{review.one.updated_at.isoformat()} {review.other.updated_at.isoformat()}"


def _times(text: str) -> tuple[datetime, datetime] | None:
    try:
        one, other = map(datetime.fromisoformat, text.split(" "))
    except ValueError:
        return None
    return one, other


@PAGE.post("/answer")
async def answer(visit: Visit) -> Response:
    """Record whether a pair is one person, if both are still as the form showed them."""
    one, other, said = (visit.form.get(name, "") for name in ("one", "other", "answer"))
    if said not in ("same", "different"):
        return visit.back("people", problem="choose: same or different")
    seen = _times(visit.form.get("seen", ""))
    if seen is None:
        return visit.back("people", problem="the form is not complete, so nothing was changed; reload the page")
    try:
        await visit.call_people(visit.admin.answer_review(one, other, same=said == "same", seen=seen))
    except ConfigurationError as error:
        return visit.back("people", problem=str(error))
    text = "are one person" if said == "same" else "are different people"
    return visit.back("people", done=f"{one} and {other} {text}")
