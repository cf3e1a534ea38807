"""The acceptance criteria of people, with their limits: `python -m tests.people_acceptance [--small]`.

The tests check small sizes of the same. The soak runs all of it, and its report has the figures.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from bench.people import Quality, measured
from bench.people_blind import BLIND, rldata
from bench.people_blind import HOW as HOW_BLIND
from bench.people_data import FEBRL, HOW, Known, fake_1000, febrl
from bench.people_towns import Town, lost
from onceward.people import People, SourceRecord

PRECISION: Final = 0.99
F1: Final = {**dict.fromkeys(FEBRL, 0.99), "fake_1000": 0.85}
TOWN: Final = 100_000
BY_BIRTH_DATE: Final = ("given_name", "surname", "date_of_birth", "city")
BY_CITY: Final = ("given_name", "surname", "city")
MOST_LOST: Final = {BY_BIRTH_DATE: 5, BY_CITY: 50}
"""How many of 100,000 distinct people may be lost by wrong merges."""

SHUFFLES: Final = 10
BATCH_SIZES: Final = (1, 7, 1000)

Division = set[frozenset[tuple[str, str]]]
"""The records of each person."""


class Figure(NamedTuple):
    """What was measured, the value, and whether it is within its limit."""

    what: str
    value: str
    passed: bool = True


def known_set(name: str) -> list[Known]:
    """Return a data set. Raise if its package is not installed: a criterion must not be skipped silently."""
    if name == "fake_1000":
        return fake_1000()
    records, how = (rldata(name), HOW_BLIND) if name in BLIND else (febrl(name), HOW)
    if records is None:
        raise ModuleNotFoundError(f"{name} is missing: {how}")
    return records


def score(name: str) -> Figure:
    """Compare precision and F1 with their limits. The blind sets have none: they are only reported."""
    found = measured(name, known_set(name))
    is_blind = name in BLIND
    passed = is_blind or (found.precision >= PRECISION and found.f1 >= F1[name])
    return Figure(f"{name}{' (blind)' if is_blind else ''}", _describe(found), passed)


def _describe(found: Quality) -> str:
    return (
        f"precision {found.precision:.4f}, recall {found.recall:.4f}, F1 {found.f1:.4f},"
        f" {found.asked:,} of {found.records:,} asked"
    )


def divided(records: Sequence[SourceRecord], batch_size: int) -> Division:
    """Add the records in batches of this size, and return who is together."""
    with People("sqlite://:memory:") as people:
        for start in range(0, len(records), batch_size):
            people.add_many(records[start : start + batch_size])
        return {frozenset((part.source, part.record) for part in person.contributions) for person in people}


def differing_pairs(records: Iterable[SourceRecord], shuffles: int = SHUFFLES) -> int:
    """Return how many pairs of records are together in one order and not in another."""
    shuffled = list(records)
    expected = _pairs(divided(shuffled, 1000))
    differing: set[frozenset[tuple[str, str]]] = set()
    for seed in range(shuffles):
        dice = random.Random(seed)
        dice.shuffle(shuffled)
        differing |= expected ^ _pairs(divided(shuffled, dice.choice(BATCH_SIZES)))
    return len(differing)


def _pairs(division: Division) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(pair) for person in division for pair in combinations(sorted(person), 2)}


def shuffled_set(name: str) -> Figure:
    differing = differing_pairs(one.record for one in known_set(name))
    return Figure(f"{name}: pairs that differ over {SHUFFLES} shuffles", str(differing), differing == 0)


def town(fields: tuple[str, ...], size: int, *, invented: bool) -> Figure:
    """Add a town of distinct people, and count those that were lost by a wrong merge."""
    with People("sqlite://:memory:") as people:
        gone, asked = lost(Town(3, fields, invented=invented).people(size), people)
    names = "invented" if invented else "common"
    return Figure(
        f"{size:,} distinct people with {names} names, by {', '.join(fields)}",
        f"{gone} lost (at most {MOST_LOST[fields]}), {asked:,} asked",
        gone <= MOST_LOST[fields],
    )


def figures(*, small: bool = False) -> Iterable[Figure]:
    """Measure every criterion; with `small`, only the small sets and a small town."""
    names = ("febrl1", "fake_1000") if small else tuple(F1)
    for name in (*names, *(BLIND[:1] if small else BLIND)):
        yield score(name)
    for fields in MOST_LOST:
        for invented in (False, True):
            yield town(fields, TOWN // 50 if small else TOWN, invented=invented)
    for name in names:
        yield shuffled_set(name)


def main(arguments: Sequence[str]) -> int:
    passed = True
    for one in figures(small="--small" in arguments):
        print(f"{'ok    ' if one.passed else 'FAILED'} {one.what}: {one.value}", flush=True)
        passed = passed and one.passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
