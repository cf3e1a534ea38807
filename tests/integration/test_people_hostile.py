"""Rows that invite a wrong merge: placeholders, relatives with similar names, shared addresses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.people import PERSON, Field, People, kinds
from onceward.people.match_types import MAX_COMPARED
from onceward.people.similarity import Similarity
from tests.people_acceptance import divided
from tests.people_backends import record

HOME = {"street": "Hauptstr. 5", "postcode": "10115", "city": "Berlin", "country": "DE", "phone": "030 901820"}
TWIN = HOME | {"surname": "Schmidt", "date_of_birth": "2004-05-06"}
GIVEN_NAMES = ["Anna", "Eva", "Bernd", "Lukas", "Marie"]


@pytest.fixture
def people() -> Iterator[People]:
    with People("sqlite://:memory:") as opened:
        yield opened


@pytest.mark.finding("N62")
@pytest.mark.parametrize(
    "placeholder",
    [
        {"email": "none@none.com"},
        {"email": "test@test.de"},
        {"email": "unknown@unknown.invalid"},
        {"external_id": "n/a"},
        {"external_id": "NULL"},
        {"external_id": "0000"},
        {"national_id": "000-00-0000"},
        {"national_id": "999999999"},
        {"national_id": "123456789"},
        {"date_of_birth": "1900-01-01"},
        {"date_of_birth": "31.12.9999"},
    ],
)
def test_a_placeholder_identifies_no_one(people: People, placeholder: dict[str, str]) -> None:
    rows = [
        record("csv", str(n), given_name="Anna", surname=surname, city="Berlin", **placeholder)
        for n, surname in enumerate(("Schmidt", "Schmidt", "Huber"))
    ]
    decisions = people.add_many(rows)
    assert len(people) == 3
    [name] = placeholder
    assert all(f"{name}: " in one.ignored[0] and "stands for a missing value" in one.ignored[0] for one in decisions)
    assert {person.fields[name] for person in people} == {placeholder[name]}, "the value is still stored"


@pytest.mark.finding("N62")
def test_an_unknown_name_is_a_missing_name(people: People) -> None:
    row = {"name": "Unknown Unknown", "date_of_birth": "1980-01-31", "city": "Berlin"}
    people.add_many([record("csv", "1", **row), record("csv", "2", **row)])
    assert len(people) == 2


@pytest.mark.finding("N62")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"given_name": "Mohammed Ali"}, {"given_name": "Mohammed Amin"}),
        ({"given_name": "Zoltan"}, {"given_name": "Zoltana"}),
        ({"given_name": "Rafiko"}, {"given_name": "Rafika"}),
        ({"given_name": "Lea Sophie"}, {"given_name": "Lea Marie"}),
        ({"given_name": "伟"}, {"given_name": "芳"}),
    ],
)
def test_twins_with_similar_names_stay_apart(people: People, one: dict[str, Any], other: dict[str, Any]) -> None:
    people.add_many([record("csv", "1", **TWIN | one), record("csv", "2", **TWIN | other)])
    assert len(people) == 2


@pytest.mark.finding("N62")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hans Schmidt sen.", "Hans Schmidt jun."),
        ("Hans Schmidt", "Hans Schmidt Jr."),
        ("Schmidt II, Hans", "Schmidt, Hans"),
    ],
)
def test_father_and_son_of_one_name_stay_apart(people: People, one: str, other: str) -> None:
    people.add_many([record("csv", "1", name=one, **HOME), record("csv", "2", name=other, **HOME)])
    assert len(people) == 2


@pytest.mark.finding("N62", "N64")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(GIVEN_NAMES), min_size=2, max_size=3, unique=True), st.integers(1, 2))
def test_a_record_without_a_given_name_never_joins_two_members_of_a_household(names: list[str], batch: int) -> None:
    rows = [record("csv", name, given_name=name, **TWIN) for name in names] + [record("csv", "nameless", **TWIN)]
    found = {frozenset(divided(order, batch)) for order in permutations(rows)}
    assert len(found) == 1
    for person in found.pop():
        assert len({id for _, id in person} - {"nameless"}) <= 1


@pytest.mark.finding("N62")
def test_a_shared_address_is_reported_if_names_or_birth_dates_differ(people: People) -> None:
    family = {"email": "schmidts@home.example", "surname": "Schmidt"}
    people.add(record("csv", "1", given_name="Hans", date_of_birth="1950-03-01", **family))
    again = people.add(record("crm", "1", given_name="Hans", date_of_birth="1950-03-01", **family))
    assert again.reason == "the same email schmidts@home.example"
    son = people.add(record("csv", "2", given_name="Peter", date_of_birth="1980-11-23", **family))
    assert son.reason.endswith(
        f"although the names or birth dates differ; if several people share it, split {son.person}"
    )


@pytest.mark.finding("N62")
def test_a_real_address_that_resembles_a_placeholder_still_identifies(people: People) -> None:
    for address in ("nina.none@example.com", "test@firma.example", "null@gmail.com"):
        first, second = (people.add(record(source, address, email=address)) for source in ("csv", "crm"))
        assert first.person == second.person is not None


SHARED = ["info@acme.example", "no-reply@acme.example", "none@acme.example", "family@acme.example", "none@none.com"]


@pytest.mark.finding("N62", "N64")
@pytest.mark.parametrize("address", SHARED)
def test_an_address_that_several_people_read_merges_no_one_in_any_order(address: str) -> None:
    """Rows with other names stay apart, and a row without a name joins none of them to another."""
    rows = [record("csv", name, name=name, city="Berlin", email=address) for name in ("Anna Berg", "Bernd Falk")]
    rows.append(record("list", "nameless", email=address, phone="030 901820"))
    for batch in (1, 3):
        found = {frozenset(divided(order, batch)) for order in permutations(rows)}
        assert len(found) == 1
        assert all(len({id for source, id in person if source == "csv"}) <= 1 for person in found.pop())


@pytest.mark.finding("N62")
def test_an_address_of_a_role_finds_the_same_person_again(people: People) -> None:
    anna = {"email": "info@acme.example", "name": "Anna Berg"}
    first = people.add(record("csv", "1", **anna)).person
    assert people.add(record("crm", "7", **anna, city="Berlin")).person == first
    assert people.add(record("web", "3", **anna, date_of_birth="1980-01-31")).person == first
    assert len(people) == 1
    assert people.add(record("web", "4", **anna, date_of_birth="1955-11-02")).person != first


@pytest.mark.finding("N62")
def test_an_address_of_a_role_finds_its_only_person_and_none_of_several(people: People) -> None:
    anna = people.add(record("csv", "1", email="info@acme.example", name="Anna Berg")).person
    found = people.find(email="Info@acme.example")
    assert found is not None
    assert found.id == anna
    people.add(record("csv", "2", email="info@acme.example", name="Bernd Falk"))
    assert people.find(email="info@acme.example") is None


@pytest.mark.finding("N62")
def test_an_address_of_a_role_is_one_contact_if_the_field_says_so() -> None:
    with People("sqlite://:memory:", fields={**PERSON, "email": Field(kinds.MAILBOX, strong=True)}) as contacts:
        for name in ("Anna Berg", "Bernd Falk"):
            contacts.add(record("csv", name, email="info@acme.example", name=name))
        assert len(contacts) == 1


@pytest.mark.finding("N62")
def test_an_address_of_thousands_compares_each_row_with_a_few(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """Onceward does not know this placeholder, so all rows are one person. The work must not grow with its records."""
    compared: list[int] = []
    compare_groups = Similarity.compare_groups

    def counted(self: Similarity, here: Any, there: Any) -> Any:
        compared.append(len(here) * len(there))
        return compare_groups(self, here, there)

    monkeypatch.setattr(Similarity, "compare_groups", counted)
    rows = [record("csv", str(n), email="nothing@nothing.example", name=f"Name{n} Other{n}") for n in range(500)]
    people.add_many(rows)
    assert len(people) == 1
    assert max(compared) <= MAX_COMPARED
    assert (
        "although the names"
        in people.add(record("csv", "more", email="nothing@nothing.example", name="Ada Zech")).reason
    )
