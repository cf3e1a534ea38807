"""Pairs that may be one person: list them with the evidence, and store an operator's answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import product
from typing import Any, Final

from msgspec import Struct

from onceward.errors import ConfigurationError
from onceward.protocol.instants import moment

from . import queries
from . import tables as sql
from .batch_state import age
from .fields import Preset
from .ingest import merge_units, refresh
from .person import Person
from .similarity import describe
from .source import Evidence, decode_evidence
from .tables import Tables

PAGE: Final = 100

Seen = tuple[datetime, datetime] | None
"""When the two people of a question had last changed, as they were shown to the operator who answers it."""

ANSWERS: Final = "SELECT answer FROM {t}onceward_reviews WHERE one = ? AND other = ? AND answer <> ''"


class ReviewField(Struct, frozen=True):
    """A field of both people, and how it was compared. `level` and `weight` are None if it was not."""

    name: str
    one: Any
    other: Any
    level: str | None = None
    weight: float | None = None
    """In bits: positive values support the same person."""


class Review(Struct, frozen=True):
    """A question to an operator: are these one person? `source` and `record` name the record that raised it.

    In `evidence`, `here` is the value of `one`, and `there` the value of `other`.
    """

    one: Person
    other: Person
    confidence: float
    evidence: tuple[Evidence, ...]
    source: str
    record: str
    asked_at: datetime

    @property
    def reason(self) -> str:
        """Why the pair is asked about: `given_name one letter apart; surname, date_of_birth equal: 0.97`."""
        return describe(self.evidence, self.confidence)

    def fields(self) -> list[ReviewField]:
        """Return the fields of both people, those that were compared first. A missing value is None."""
        compared = {one.field: one for one in self.evidence}
        mine, theirs = self.one.fields, self.other.fields
        stored = [name for name in compared if name in mine or name in theirs]
        only_compared = [name for name in compared if name not in stored]  # a part of the name
        rows = []
        for name in dict.fromkeys([*stored, *sorted({*mine, *theirs})]):
            found = compared.get(name)
            level, weight = (found.level, found.weight) if found else (None, None)
            rows.append(ReviewField(name, mine.get(name), theirs.get(name), level, weight))
        parts = [compared[name] for name in only_compared]
        return rows + [ReviewField(one.field, one.here, one.there, one.level, one.weight) for one in parts]


def questions(tables: Tables, limit: int) -> list[Review]:
    """Return the unanswered pairs, the likeliest first. Pairs that are one person by now are left out."""
    found: dict[tuple[str, str], Review] = {}
    start = 0
    while len(found) < limit and (rows := tables.run(sql.OPEN_REVIEWS, PAGE, start)):
        start += len(rows)
        for one, other, source, record, confidence, evidence, asked_at in rows:
            pair = [queries.one(tables, id) for id in (one, other)]
            if pair[0] is None or pair[1] is None or pair[0].id == pair[1].id or len(found) == limit:
                continue
            key = (min(pair[0].id, pair[1].id), max(pair[0].id, pair[1].id))
            found.setdefault(
                key, Review(pair[0], pair[1], confidence, decode_evidence(evidence), source, record, moment(asked_at))
            )
    return list(found.values())


def same(tables: Tables, preset: Preset, pair: tuple[str, str], audit: tuple[str, int], seen: Seen) -> str:
    """Merge the pair and return the surviving id. If they are already merged, change nothing.

    `audit` has the author and the time.
    """
    who, now = audit
    one, other = _unchanged_pair(tables, pair, seen)
    if one.id == other.id:
        return one.id
    survivor, loser = sorted((one.id, other.id), key=age)
    _store_answer(tables, (one.id, other.id), "same", who, now)
    for person, units in units_of(tables, (one.id, other.id)).items():
        for unit in units:
            if unit != survivor:
                merge_units(tables, (person, unit), (survivor, survivor), now)
    tables.run(sql.SET_REDIRECT, survivor, now, loser)  # also if it has no records any more
    refresh(tables, preset, [survivor], now)
    return survivor


def different(tables: Tables, pair: tuple[str, str], audit: tuple[str, int], seen: Seen) -> None:
    """Record that the pair are two different people, and so are all their units."""
    who, now = audit
    one, other = _unchanged_pair(tables, pair, seen)
    if one.id == other.id:
        raise ConfigurationError(
            f"{pair[0]} and {pair[1]} are already one person",
            hint="an operator merged them, or a record with keys of both; `onceward review ID --split` undoes a merge",
        )
    units = units_of(tables, (one.id, other.id))
    for here, there in product(units[one.id], units[other.id]):
        _store_answer(tables, (here, there), "different", who, now)


def _unchanged_pair(tables: Tables, pair: tuple[str, str], seen: Seen) -> tuple[Person, Person]:
    """Lock and return both people. Each id may redirect to the person it was merged into.

    Raise if these are not the people that the operator saw, or if another operator has answered in the meantime.
    """
    tables.lock_all()
    one, other = (queries.existing(tables, id, "`onceward review` lists the pairs") for id in pair)
    if seen is None:
        return one, other
    hint = "nothing was changed; look at the pair again"
    if (one.id, other.id) != pair or (one.updated_at, other.updated_at) != seen:
        raise ConfigurationError(f"{pair[0]} or {pair[1]} has changed since the pair was shown", hint=hint)
    units = units_of(tables, pair)
    for here, there in product(units[one.id], units[other.id]):
        if tables.run(ANSWERS, *sorted((here, there))):
            raise ConfigurationError(f"{pair[0]} and {pair[1]} were answered in the meantime", hint=hint)
    return one, other


def units_of(tables: Tables, people: Sequence[str]) -> dict[str, list[str]]:
    """Return the units of each person, the person's own first."""
    found: dict[str, list[str]] = {person: [person] for person in people}
    for _, person, unit, *_ in tables.run(sql.RECORDS_OF, list(people)):
        if unit not in found[person]:
            found[person].append(unit)
    return found


def _store_answer(tables: Tables, pair: tuple[str, str], answer: str, who: str, now: int) -> None:
    one, other = sorted(pair)
    tables.run(sql.SET_ANSWER, one, other, answer, now, now, who)
