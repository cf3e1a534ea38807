"""Twins share surname, birth date, home and phone. If their given names are one letter apart, they are asked about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.people_towns import SYLLABLES
from onceward.people import People
from onceward.people.fields import preset
from onceward.people.known_names import COMMON, are_forms, sound
from onceward.people.match_types import SIMILARITY
from onceward.people.preparation import encode_record, prepare_record
from onceward.people.similarity import Comparison, Similarity
from tests.people_backends import actions, partition, record

PRESET = preset()
SHARED = {
    "surname": "Sharma",
    "date_of_birth": "2004-05-06",
    "street": "Hauptstr. 5",
    "postcode": "10115",
    "city": "Berlin",
    "country": "DE",
    "phone": "030 901820",
}
UNCOMMON = [
    ("Rahul", "Rahil"),
    ("Karina", "Darina"),
    ("Ishan", "Ihsan"),
    ("Naveen", "Navees"),
    ("Tarik", "Tarek"),
    ("Sanvi", "Tanvi"),
    ("Zorka", "Zorko"),
    ("Sara", "Zara"),
    ("Aarav", "Aarov"),
    ("Jaylen", "Jaylin"),
    ("Anna", "Anja"),
    ("Lotta", "Lotte"),
]

pytestmark = pytest.mark.finding("N62")


@pytest.fixture
def people() -> Iterator[People]:
    with People("sqlite://:memory:") as opened:
        yield opened


def compared(one: dict[str, Any], other: dict[str, Any]) -> Comparison:
    forms = [prepare_record(PRESET, encode_record(record("csv", "1", **row)), row).form for row in (one, other)]
    return Similarity(PRESET).compare(*forms)


def one_letter_apart(names: Iterator[str]) -> set[tuple[str, str]]:
    """Return all pairs of names of which one letter differs, or is missing in one of them."""
    without: dict[str, set[str]] = defaultdict(set)
    for name in names:
        without[name].add(name)
        for n in range(len(name)):
            without[f"{name[:n]}_{name[n + 1 :]}"].add(name)
            without[name[:n] + name[n + 1 :]].add(name)
    return {pair for group in without.values() for pair in combinations(sorted(group), 2)}


def test_no_two_names_of_the_lists_merge() -> None:
    """Exceptions: spellings that sound the same (Sofie, Sophie), and forms of one name that are not common as such."""
    similarity = Similarity(PRESET)
    form = prepare_record(PRESET, encode_record(record("csv", "1", **SHARED)), SHARED).form
    pairs = [pair for pair in one_letter_apart(iter(COMMON)) if sound(pair[0]) != sound(pair[1])]
    assert len(pairs) > 1_000
    merged = [pair for pair in pairs if similarity.compare((pair[0], *form[1:]), (pair[1], *form[1:])).may_merge]
    assert merged == []


@given(st.lists(st.sampled_from(SYLLABLES.split()), min_size=2, max_size=4), st.data())
def test_no_invented_names_one_letter_apart_merge(syllables: list[str], data: st.DataObject) -> None:
    name = "".join(syllables)
    n = data.draw(st.integers(0, len(name) - 1))
    other = name[:n] + data.draw(st.sampled_from("abdefgiklmnoprst")) + name[n + 1 :]
    if name in COMMON or other in COMMON or sound(name) == sound(other) or are_forms(name, other):
        return
    assert not compared(SHARED | {"given_name": name}, SHARED | {"given_name": other}).may_merge


@pytest.mark.parametrize("twins", UNCOMMON, ids="-".join)
def test_twins_are_two_people(people: People, twins: tuple[str, str]) -> None:
    rows = [record("csv", name, **SHARED, given_name=name) for name in twins]
    people.add_many(rows)
    again = [record("crm", name, **SHARED, given_name=name) for name in twins]
    assert actions(people.add_many(again)) == ["updated", "updated"]
    assert partition(people) == {frozenset({("csv", name), ("crm", name)}) for name in twins}


def test_the_question_says_why(people: People) -> None:
    people.add(record("csv", "1", **SHARED, given_name="Tanvir"))
    asked = people.add(record("csv", "2", **SHARED, given_name="Tanvar"))
    assert (asked.action, asked.rule) == ("to_review", SIMILARITY)
    assert "given_name one letter apart" in asked.reason
    assert len(people.reviews()) == 1


@pytest.mark.parametrize(
    "between",
    [{"given_name": "T."}, {}, {"given_name": "Sharma", "surname": "Tanvar"}],
    ids=["initial", "no given name", "interchanged"],
)
def test_a_third_record_does_not_join_twins(people: People, between: dict[str, str]) -> None:
    rows = [record("csv", name, **SHARED, given_name=name) for name in ("Tanvir", "Tanvar")]
    for order in permutations([*rows, record("csv", "3", **SHARED | between)]):
        with People("sqlite://:memory:") as opened:
            opened.add_many(order)
            assert not any({("csv", "Tanvir"), ("csv", "Tanvar")} <= person for person in partition(opened))


@pytest.mark.parametrize("twins", [("Tanvir", "Tanvar"), ("Maria", "Marie")], ids="-".join)
def test_interchanged_names_of_twins_are_asked_about(people: People, twins: tuple[str, str]) -> None:
    people.add(record("csv", "1", **SHARED, given_name=twins[0]))
    decision = people.add(record("csv", "2", **SHARED | {"given_name": "Sharma", "surname": twins[1]}))
    assert decision.action == "to_review"


@pytest.mark.parametrize(
    "own",
    [{"email": "t.sharma@example.com"}, {"national_id": "85749301"}, {"external_id": "C-17"}],
    ids=lambda own: next(iter(own)),
)
def test_evidence_of_the_person_joins_them(people: People, own: dict[str, str]) -> None:
    people.add_many([record("csv", name, **SHARED, **own, given_name=name) for name in ("Tanvir", "Tanvar")])
    assert len(people) == 1


@pytest.mark.parametrize("typo", ["Elizaseth", "Elizabteh", "Elizabqth", "Eliza beth", "Elisabeth", "Liz", "E."])
def test_a_misspelt_known_name_is_no_twin(people: People, typo: str) -> None:
    people.add_many([record("csv", name, **SHARED, given_name=name) for name in ("Elizabeth", typo)])
    assert len(people) == 1
