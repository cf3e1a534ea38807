"""Pairs that may be one person: list them with the evidence, and store an operator's answers."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from onceward.errors import ConfigurationError

from . import queries
from . import tables as sql
from .fields import Preset
from .ingest import redirect, refresh
from .person import Person, moment
from .source import Evidence
from .tables import Tables

_evidence = msgspec.json.Decoder(tuple[Evidence, ...]).decode


class Review(Struct, frozen=True):
    """A question to an operator: are these one person? `source` and `record` name the record that raised it."""

    one: Person
    other: Person
    confidence: float
    evidence: tuple[Evidence, ...]
    source: str
    record: str
    asked_at: datetime


def questions(tables: Tables, limit: int) -> list[Review]:
    """Return the unanswered pairs, the likeliest first."""
    rows = tables.run(sql.OPEN_REVIEWS, limit)
    wanted = sorted({person for row in rows for person in row[:2]})
    found = {person.id: person for person in queries.people(tables, wanted)}
    return [
        Review(found[one], found[other], confidence, _evidence(evidence), source, record, moment(asked_at))
        for one, other, source, record, confidence, evidence, asked_at in rows
    ]


def same(tables: Tables, preset: Preset, pair: tuple[str, str], who: str, now: int) -> str:
    """Merge the pair and return the surviving id. If they are already merged, change nothing."""
    tables.lock_all()
    one, other = _pair(tables, pair)
    if one.id == other.id:
        return one.id
    survivor, loser = sorted((one, other), key=lambda person: (person.created_at, len(person.id), person.id))
    _store_answer(tables, (one.id, other.id), "same", who, now)
    redirect(tables, loser.id, survivor.id, now)
    refresh(tables, preset, [survivor.id], now)
    return survivor.id


def different(tables: Tables, pair: tuple[str, str], who: str, now: int) -> None:
    """Record that the pair are two different people."""
    tables.lock_all()
    one, other = _pair(tables, pair)
    if one.id == other.id:
        raise ConfigurationError(
            f"{pair[0]} and {pair[1]} are already one person",
            hint="an operator merged them, or a record with keys of both; `onceward review ID --split` undoes a merge",
        )
    _store_answer(tables, (one.id, other.id), "different", who, now)


def _pair(tables: Tables, pair: tuple[str, str]) -> tuple[Person, Person]:
    """Return both people. Each id may redirect to the person it was merged into."""
    found = []
    for wanted in pair:
        person = next(queries.people(tables, [wanted]), None)
        if person is None:
            raise ConfigurationError(f"there is no person {wanted!r}", hint="`onceward review` lists the pairs")
        found.append(person)
    return found[0], found[1]


def _store_answer(tables: Tables, pair: tuple[str, str], answer: str, who: str, now: int) -> None:
    one, other = sorted(pair)
    tables.run(sql.SET_ANSWER, one, other, answer, now, now, who)
