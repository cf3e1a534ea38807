"""Pairs that may be one person: listed with the evidence, answered by somebody, and the answer kept."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from onceward.errors import ConfigurationError

from . import reading
from . import tables as sql
from .fields import Preset
from .intake import redirect, refresh
from .person import Person, moment
from .source import Evidence
from .tables import Tables

_evidence = msgspec.json.Decoder(tuple[Evidence, ...]).decode


class Review(Struct, frozen=True):
    """A question: are these one person? `source` and `record` tell which record raised it."""

    one: Person
    other: Person
    confidence: float
    evidence: tuple[Evidence, ...]
    source: str
    record: str
    asked_at: datetime


def questions(tables: Tables, limit: int) -> list[Review]:
    """Those without an answer, the likeliest first."""
    rows = tables.rows(sql.QUESTIONS, limit)
    wanted = sorted({person for row in rows for person in row[:2]})
    found = {person.id: person for person in reading.people(tables, wanted)}
    return [
        Review(found[one], found[other], confidence, _evidence(evidence), source, record, moment(asked_at))
        for one, other, source, record, confidence, evidence, asked_at in rows
    ]


def same(tables: Tables, preset: Preset, pair: tuple[str, str], who: str, now: int) -> str:
    """Merge them; who survives. If that was done before, nothing changes."""
    tables.claim_all()
    one, other = _pair(tables, pair)
    if one.id == other.id:
        return one.id
    survivor, loser = sorted((one, other), key=lambda person: (person.created_at, len(person.id), person.id))
    _note(tables, (one.id, other.id), "same", who, now)
    redirect(tables, loser.id, survivor.id, now)
    refresh(tables, preset, [survivor.id], now)
    return survivor.id


def different(tables: Tables, pair: tuple[str, str], who: str, now: int) -> None:
    """Keep them apart."""
    tables.claim_all()
    one, other = _pair(tables, pair)
    if one.id == other.id:
        raise ConfigurationError(
            f"{pair[0]} and {pair[1]} are one person already", hint="somebody, or a record with both keys, said so"
        )
    _note(tables, (one.id, other.id), "different", who, now)


def _pair(tables: Tables, pair: tuple[str, str]) -> tuple[Person, Person]:
    """As they are now: each may have turned out to be another."""
    found = []
    for wanted in pair:
        person = next(reading.people(tables, [wanted]), None)
        if person is None:
            raise ConfigurationError(f"there is no person {wanted!r}", hint="`onceward review` lists the pairs")
        found.append(person)
    return found[0], found[1]


def _note(tables: Tables, pair: tuple[str, str], answer: str, who: str, now: int) -> None:
    one, other = sorted(pair)
    tables.rows(sql.ANSWER, one, other, answer, now, now, who)
