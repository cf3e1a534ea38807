"""A person, merged from the records of all sources."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from .source import Evidence


class Contribution(Struct, frozen=True):
    """What one source record says about a person, and which rule assigned it to this person."""

    source: str
    """The system or file that the record came from, such as `crm`."""
    record: str
    """The id of the record within its source."""
    fields: Mapping[str, Any]
    """The values as the source wrote them."""
    at: datetime
    """When the source says that this was true. If the source gave no time, when the record arrived."""
    rule: str
    """What assigned the record to this person, such as `similarity`, or `split` if an operator did."""
    confidence: float
    """The probability, from 0 to 1, that this assignment is correct."""
    number: int = 0
    """Id of this contribution in this database. `people.split(person, [number])` moves it out of the person."""

    evidence: tuple[Evidence, ...] = ()
    """If similarity assigned it: how its fields compare with those of the most similar record."""


class Person(Struct, frozen=True):
    """A person. `fields` are merged from the contributions by policy; `sources` are in order of arrival.

    `id` never changes; after a merge, it leads to the other person. `keys` are the strong keys. `first_seen` and
    `last_seen` are times of the sources, `created_at` and `updated_at` those of this database.
    """

    id: str
    fields: Mapping[str, Any]
    sources: tuple[str, ...]
    keys: tuple[str, ...]
    """The strong keys that lead here, such as `email:anna@example.com`."""

    contributions: tuple[Contribution, ...]
    first_seen: datetime
    last_seen: datetime
    created_at: datetime
    updated_at: datetime

    def of(self, source: str) -> list[Mapping[str, Any]]:
        """Return the fields from this `source` only: one mapping per record."""
        return [one.fields for one in self.contributions if one.source == source]
