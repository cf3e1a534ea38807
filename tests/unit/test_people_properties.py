"""Random records in random order: exact keys alone decide which records are one person."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onceward.people import People, SourceRecord
from tests.people_backends import everything, partition

EMAILS = st.lists(st.sampled_from("abcdef"), max_size=2, unique=True)
NUMBERS = st.sampled_from(["", "", "1", "2", "3"])
NAMES = st.sampled_from(["", "Anna Schmidt", "Ana Schmidt", "Bernd Schmidt", "Paul Meyer"])
CITIES = st.sampled_from(["", "Berlin", "Rome"])
Keys = list[tuple[list[str], str]]


def exact(rows: Keys) -> list[SourceRecord]:
    return [
        SourceRecord("csv", {"email": [f"{one}@example.com" for one in emails], "external_id": number}, str(n))
        for n, (emails, number) in enumerate(rows)
        if emails or number
    ]


def by_keys(rows: Keys) -> set[frozenset[tuple[str, str]]]:
    """Return the groups that are connected by keys, found by brute force."""
    groups: list[tuple[set[str], set[tuple[str, str]]]] = []
    for n, (emails, number) in enumerate(rows):
        keys = {*emails, number} - {""}
        if not keys:
            continue
        touched = [group for group in groups if group[0] & keys]
        groups = [group for group in groups if not group[0] & keys]
        groups.append((keys.union(*(group[0] for group in touched)), {("csv", str(n))}.union(*(g[1] for g in touched))))
    return {frozenset(records) for _, records in groups}


@given(st.lists(st.tuples(EMAILS, NUMBERS), max_size=8), st.randoms(), st.integers(1, 4))
def test_exact_matches_are_what_the_keys_connect(rows: Keys, dice: object, batch_size: int) -> None:
    records = exact(rows)
    dice.shuffle(records)  # type: ignore[attr-defined]
    with People("sqlite://:memory:") as people:
        for start in range(0, len(records), batch_size):
            people.add_many(records[start : start + batch_size])
        assert partition(people) == by_keys(rows)


@given(st.lists(st.tuples(EMAILS, NAMES, CITIES), min_size=1, max_size=8), st.randoms())
def test_everything_twice_in_any_order_gives_the_same_people(
    rows: list[tuple[list[str], str, str]], dice: object
) -> None:
    records = [
        SourceRecord("csv", {"email": [f"{one}@example.com" for one in emails], "name": name, "city": city}, str(n))
        for n, (emails, name, city) in enumerate(rows)
    ]
    with People("sqlite://:memory:") as people:
        people.add_many(records)
        before = everything(people)
        again = list(records)
        dice.shuffle(again)  # type: ignore[attr-defined]
        assert {one.action for one in people.add_many(again)} <= {"skipped", "rejected"}
        assert everything(people) == before
