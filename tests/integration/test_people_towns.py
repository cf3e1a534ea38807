"""Different people are never merged: towns of distinct people, households and twins, and people who share a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench.people_towns import Town, lost
from onceward.people import People
from tests.people_acceptance import BY_BIRTH_DATE, BY_CITY, score
from tests.people_backends import actions, record

SIZE = 4_000
BY_HOME = ("given_name", "surname", "date_of_birth", "street", "postcode", "city", "phone")
HOME = {"street": "Hauptstr. 5", "postcode": "10115", "city": "Berlin", "country": "DE", "phone": "030 901820"}


@pytest.fixture
def people() -> Iterator[People]:
    with People("sqlite://:memory:") as opened:
        yield opened


@pytest.mark.finding("N62")
@pytest.mark.parametrize("invented", [False, True], ids=["common names", "invented names"])
@pytest.mark.parametrize("fields", [BY_BIRTH_DATE, BY_CITY, BY_HOME], ids=["birth date", "city", "home"])
def test_a_town_of_distinct_people_loses_no_one(people: People, fields: tuple[str, ...], *, invented: bool) -> None:
    """The limit for 100,000 people is 5 by birth date and 50 by city. A town of 4,000 has to lose none."""
    assert lost(Town(3, fields, invented=invented).people(SIZE), people)[0] == 0


@pytest.mark.finding("N62")
def test_people_who_share_name_and_city_are_asked_about(people: People) -> None:
    rows = [record("csv", str(n), given_name="Anna", surname="Schmidt", city="Berlin") for n in range(5)]
    assert actions(people.add_many(rows)) == ["created", *["to_review"] * 4]
    assert len(people) == 5
    assert people.reviews() != []


@pytest.mark.finding("N62")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"given_name": "Anna"}, {"given_name": "Hanna"}),
        ({"given_name": "Marie"}, {"given_name": "Maria"}),
        ({"given_name": "Jan"}, {"given_name": "Jana"}),
        ({"given_name": "Martin"}, {"given_name": "Martina"}),
        ({"given_name": "Tom"}, {"given_name": "Tim"}),
        ({"given_name": "Anna"}, {"given_name": "Anna", "surname": "Huber", "street": "Ring 1", "phone": ""}),
        ({"given_name": "Anna"}, {"given_name": "Anna", "surname": "Huber", "date_of_birth": ""}),
        ({"given_name": "Hans", "date_of_birth": "1950-03-01"}, {"given_name": "Hans", "date_of_birth": "1980-11-23"}),
        ({"given_name": "Lea", "national_id": "11223344"}, {"given_name": "Mia", "national_id": "11223345"}),
    ],
)
def test_twins_and_households_stay_apart(people: People, one: dict[str, Any], other: dict[str, Any]) -> None:
    shared = HOME | {"surname": "Schmidt", "date_of_birth": "2004-05-06"}
    people.add_many([record("csv", "1", **shared | one), record("csv", "2", **shared | other)])
    assert len(people) == 2


@pytest.mark.finding("N62")
@pytest.mark.parametrize(
    "other",
    [
        {"given_name": "Katharnia"},
        {"given_name": "K."},
        {"given_name": "Kathi"},
        {"given_name": "Schmidt", "surname": "Katharina"},
        {"surname": "Schmitd"},
        {"surname": "Huber"},  # married: given name, birth date and home are the same
        {"date_of_birth": "2004-06-05", "national_id": "8574930"},
        {"surname": "Huber", "national_id": "8574930"},
    ],
)
def test_a_deviation_is_tolerated_if_further_evidence_agrees(people: People, other: dict[str, Any]) -> None:
    person = HOME | {"given_name": "Katharina", "surname": "Schmidt", "date_of_birth": "2004-05-06"}
    if "national_id" in other:
        person["national_id"] = other["national_id"]
    people.add_many([record("csv", "1", **person), record("csv", "2", **person | other)])
    assert len(people) == 1


@pytest.mark.finding("N63")
def test_an_equal_name_with_a_typo_in_the_birth_date_is_compared(people: People) -> None:
    born = {"name": "Anna Schmidt", "city": "Berlin"}
    people.add(record("csv", "1", **born, date_of_birth="1980-01-31"))
    for typo in ("1980-01-30", "1981-01-31", "1980-10-31"):
        found = people.add(record("csv", typo, **born, date_of_birth=typo))
        assert (found.action, found.reason) == (
            "to_review",
            f"given_name, surname, city equal; date_of_birth close: {found.confidence:.2f}",
        )


@pytest.mark.finding("N63")
def test_an_identical_row_is_found_in_a_crowd(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.people.batch_state.MAX_PER_COMPLETE_BLOCK", 100)
    rows = [
        {"name": "Anna Schmidt", "date_of_birth": f"1980-{month:02}-{day:02}", "city": city}
        for month in range(1, 13)
        for day in range(1, 8)
        for city in ("Berlin", "Rome", "Oslo")
    ]
    people.add_many(record("csv", str(n), **row) for n, row in enumerate(rows))
    assert len(people) == len(rows)
    again = people.add_many(record("crm", str(n), **row) for n, row in enumerate(rows[::12]))
    assert set(actions(again)) == {"updated"}
    assert len(people) == len(rows)


@pytest.mark.finding("N63")
def test_the_reason_says_what_was_compared(people: People) -> None:
    assert "no record shares its name" in people.add(record("csv", "1", name="Anna Schmidt", city="Berlin")).reason
    people.add(record("csv", "2", given_name="Anna", surname="Huber", date_of_birth="1980-01-31", city="Rome"))
    other = people.add(record("csv", "3", given_name="Anna", surname="Maier", date_of_birth="1980-01-31", city="Oslo"))
    assert "none of 1 compared records is similar enough" in other.reason
    assert "surname, city different" in other.reason


@pytest.mark.finding("N62")
@pytest.mark.parametrize("name", ["fake_1000", "febrl1"])
def test_known_data_sets(name: str) -> None:
    """The soak does the same with the other febrl sets."""
    found = score(name)
    assert found.passed, found
