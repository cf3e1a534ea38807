"""People of one organisation: they share a domain, an office and often a name, and stay separate people."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.people import measured
from bench.people_company import Directory
from onceward.people import People
from tests.people_backends import PROSPECTS, actions, record

PEOPLE = 400
BERLIN = {"city": "Berlin", "country": "DE"}


@pytest.fixture
def people() -> Iterator[People]:
    with People("sqlite://:memory:", rules=PROSPECTS) as opened:
        yield opened


@pytest.mark.mission("C5")
def test_a_directory_with_similar_names_keeps_every_person(people: People) -> None:
    """Addresses that differ by a number, one surname, one city: they were mistaken for typos of half as many people."""
    staff = [
        record("hr", str(n), name="Anna Meier", email=f"anna.meier{n}@corp.example", city="Berlin", country="DE")
        for n in range(PEOPLE)
    ]
    assert set(actions(people.add_many(staff))) == {"created"}
    assert len(people) == PEOPLE
    assert people.reviews() == [], "a different number does not cause a review"


@pytest.mark.mission("C5")
def test_names_and_addresses_that_are_nearly_the_same_are_of_different_people(people: People) -> None:
    given = ["julia", "julian", "juliana", "martin", "martina", "daniel", "daniela", "christian", "christina"]
    surnames = ["meier", "meyer", "maier", "mayer", "schmid", "schmidt", "schmitt"]
    office = {"company": "Corp", "phone": "+49 30 901820", "street": "Werkstr. 1", "city": "Berlin", "country": "DE"}
    names = [(one, other) for one in given for other in surnames]
    staff = [
        record("hr", None, given_name=one, surname=other, email=f"{one}.{other}@corp.example", **office)
        for one, other in names
    ]
    assert "updated" not in actions(people.add_many(staff))
    assert len(people) == len(staff)


def test_every_person_is_found_again_by_their_address(people: People) -> None:
    staff = [
        record("hr", str(n), name="Anna Meier", email=f"anna.meier{n}@corp.example", city="Berlin") for n in range(50)
    ]
    people.add_many(staff)
    again = people.add_many(record("crm", str(n), email=f"Anna.Meier{n}@corp.example", Room=str(n)) for n in range(50))
    assert set(actions(again)) == {"updated"}
    assert {person.fields["Room"] for person in people} == {str(n) for n in range(50)}


def test_a_record_without_an_address_matches_neither_of_two_namesakes_with_one_each(people: People) -> None:
    for number in (1, 2):
        people.add(record("hr", None, name="Anna Meier", email=f"anna.meier{number}@corp.example", **BERLIN))
    decision = people.add(record("fair", "1", name="Anna Meier", **BERLIN))
    assert decision.action != "updated"
    assert len(people) == 3


def test_a_person_with_a_merely_similar_name_is_not_a_namesake(people: People) -> None:
    for name in ("Anna", "Hanna"):
        people.add(record("hr", None, name=f"{name} Meier", email=f"{name}.meier@corp.example", **BERLIN))
    decision = people.add(record("fair", "1", name="Anna Meier", **BERLIN))
    assert (decision.action, decision.rule) == ("updated", "similarity")
    assert people.find(email="anna.meier@corp.example") == people.get(decision.person or "")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_accepted_matches_in_generated_organisations_are_correct(seed: int) -> None:
    """Directories, households, common names, short names, typos: precision first, the rest is reviewed or left."""
    found = measured("organisations", Directory(seed).records(300))
    assert found.precision == 1
    assert found.recall > 0.8
    assert found.accepted > 10


def test_the_same_seed_makes_the_same_organisations() -> None:
    assert Directory(5).records(40) == Directory(5).records(40) != Directory(6).records(40)
