"""Towns of distinct people: every merge is wrong. Households, twins, fathers and sons of one name, common names."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from bench.people_data import CITIES, GIVEN, STREETS, SURNAMES
from onceward.people import SourceRecord

SYLLABLES = (
    "ba be bi bo da de di do fa fe ga ge ka ke ki ko la le li lo ma me mi mo na ne no pa pe ra re ri ro sa se ta"
)


class Town:
    """Generates people that differ in at least one of the fields that they have."""

    def __init__(self, seed: int, fields: tuple[str, ...], *, invented: bool = False) -> None:
        self._rng = random.Random(seed)
        self._fields = fields
        self._invented = invented
        self._weights = [1 / (index + 5) for index in range(1000)]

    def people(self, count: int) -> Iterator[SourceRecord]:
        """Yield people, each with other values in the fields of this town."""
        seen: set[tuple[Any, ...]] = set()
        while len(seen) < count:
            for person in self._household():
                values = {name: person[name] for name in self._fields}
                if len(seen) < count and tuple(values.values()) not in seen:
                    seen.add(tuple(values.values()))
                    yield SourceRecord("town", values, str(len(seen)))

    def _household(self) -> list[dict[str, Any]]:
        rng = self._rng
        home = {
            "street": f"{rng.choice(STREETS).capitalize()}str. {rng.randint(1, 150)}",
            "postcode": f"{rng.randint(10000, 99999)}",
            "city": self._common(CITIES),
            "phone": f"+4930{rng.randint(1000000, 9999999)}",
        }
        surname = self._surname()
        members = []
        for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
            year = rng.randint(1935, 2015)
            birth = f"{year}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
            members.append(home | {"given_name": self._given(), "surname": surname, "date_of_birth": birth})
            if rng.random() < 0.02:  # twins
                members.append(members[-1] | {"given_name": self._given()})
            if rng.random() < 0.02:  # a child of the same name
                members.append(
                    members[-1] | {"date_of_birth": f"{year + rng.randint(18, 45)}-05-{rng.randint(1, 28):02}"}
                )
        return members

    def _given(self) -> str:
        return self._word(1) if self._invented else self._common(GIVEN)

    def _surname(self) -> str:
        return self._word(2) if self._invented else self._common(SURNAMES)

    def _word(self, more: int) -> str:
        syllables = SYLLABLES.split()
        return "".join(self._rng.choice(syllables) for _ in range(self._rng.randint(1, 2) + more))

    def _common(self, words: list[str]) -> str:
        return self._rng.choices(words, self._weights[: len(words)])[0]


def lost(records: Iterator[SourceRecord], people: Any) -> tuple[int, int]:
    """Add the records. Return how many people were lost by merges, and how many were asked about."""
    count = asked = 0
    batch: list[SourceRecord] = []
    for record in records:
        batch.append(record)
        count += 1
        if len(batch) == 1000:
            asked += sum(one.action == "to_review" for one in people.add_many(batch))
            batch.clear()
    asked += sum(one.action == "to_review" for one in people.add_many(batch))
    return count - len(people), asked
