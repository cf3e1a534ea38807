"""One person, as all sources together know it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Contribution(Struct, frozen=True):
    """What one source record says about its person, and why it is thought to be this one."""

    source: str
    record: str
    fields: Mapping[str, Any]
    at: datetime
    rule: str
    confidence: float
    number: int = 0
    """Of this contribution, in this database: `people.split(person, [number])` takes it out."""


class Person(Struct, frozen=True):
    """`fields` are merged by policy from the contributions; `sources` stand in the order in which they came."""

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
        """What this source alone says: one mapping for each of its records."""
        return [one.fields for one in self.contributions if one.source == source]


def moment(instant: int) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)


def instant(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
