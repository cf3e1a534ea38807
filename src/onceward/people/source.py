"""What a source tells about somebody, and what was decided about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

Action = Literal["created", "updated", "skipped", "to_review", "rejected"]


class SourceRecord(Struct, frozen=True):
    """One row, statement or message about one person.

    `id` is the source's own name for it: when it comes again under that id, it replaces itself. Without one its content
    is its name, so that other content stands beside it. `at` is when the source saw it so; without it, when it came.
    """

    source: str
    fields: Mapping[str, Any]
    id: str | None = None
    at: datetime | None = None


class Evidence(Struct, frozen=True):
    """How one field of two records compares. `weight` in bits: above 0 it speaks for one person, below against."""

    field: str
    level: str
    here: str
    there: str
    weight: float


class Decision(Struct, frozen=True):
    """What was done with a source record, and why.

    `person` is None only if it was rejected. `rule` is a word for programs, `reason` a sentence, `confidence`
    how sure the decision is. With `to_review`, a new person was created, and `candidate` may be the same: how sure
    that would be is the confidence; `onceward review` asks. With `created`, `candidate` is the nearest, if any.
    """

    action: Action
    person: str | None
    rule: str
    reason: str
    confidence: float = 1.0
    candidate: str | None = None
    evidence: tuple[Evidence, ...] = ()
    merged: tuple[str, ...] = ()
    """People who turned out to be this one: their ids lead here from now on."""
