"""Sources that renumber their rows: an id that is given to another person, and given back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.people import People
from tests.people_backends import BOTH, PROSPECTS, actions, people_url, record

ANNA = {"name": "Anna Schmidt", "city": "Berlin", "country": "DE"}
BERND = {"name": "Bernd Krause", "city": "Hamburg", "country": "DE"}


@pytest.fixture(params=BOTH)
def people(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[People]:
    with People(people_url(request.param, tmp_path, request), rules=PROSPECTS) as opened:
        yield opened


@pytest.mark.mission("C5", "D2")
def test_a_row_inserted_in_front_shifts_the_ids_and_every_person_stays_the_same(people: People) -> None:
    anna = people.add(record("list", "1", **ANNA)).person
    moved = people.add_many([record("list", "1", **BERND), record("list", "2", **ANNA)])
    assert actions(moved) == ["created", "updated"]
    assert moved[1].person == anna
    assert len(people) == 2


@pytest.mark.mission("D2", "D3")
def test_an_id_that_alternates_between_two_people_is_accepted_every_time(people: People) -> None:
    decisions = [people.add(record("list", "1", **row)) for row in (ANNA, BERND, ANNA, BERND, ANNA)]
    assert actions(decisions) == ["created"] * 5
    last = people.get(decisions[-1].person or "")
    assert last is not None
    assert last.fields["name"] == "Anna Schmidt"
    assert len({one.person for one in decisions}) == 5, "no person gets the id of another"


def test_many_people_are_found_by_one_query_and_an_invalid_address_finds_no_one(people: People) -> None:
    people.add_many([record("a", "1", email="anna@example.com"), record("a", "2", email="bo@example.com")])
    found = people.find_many(email=["Anna@Example.com", "bo@example.com", "carl@example.com", "no address", ""])
    assert {key: person.fields["email"] for key, person in found.items()} == {
        "Anna@Example.com": "anna@example.com",
        "bo@example.com": "bo@example.com",
    }
    assert people.find(email="no address") is None
    with pytest.raises(ConfigurationError, match="takes a list"):
        people.find_many(email="anna@example.com")
    with pytest.raises(ConfigurationError, match="not a strong key"):
        people.find(name="Anna")


def test_a_record_whose_id_cannot_be_stored_is_rejected_and_stops_no_other(people: People) -> None:
    decisions = people.add_many([record("list", "\ud800", **ANNA), record("list", "2", email="bo@example.com")])
    assert actions(decisions) == ["rejected", "created"]
    assert "id" in decisions[0].reason
