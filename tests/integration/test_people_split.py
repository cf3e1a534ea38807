"""A wrong merge is split: each person gets their own records back, and the decision is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.people import People, Person
from onceward.people.aio import AsyncPeople
from tests.people_backends import BOTH, PROSPECTS, everything, partition, people_url, record

ANNA = {"name": "Anna Schmidt", "city": "Berlin", "country": "DE"}


@pytest.fixture(params=BOTH)
def people(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[People]:
    with People(people_url(request.param, tmp_path, request), rules=PROSPECTS) as opened:
        yield opened


def current(people: People, id: str) -> Person:
    person = people.get(id)
    assert person is not None
    return person


def merged_by_hand(people: People) -> tuple[str, str]:
    one = people.add(record("crm", "1", email="a@example.com", name="Anna")).person or ""
    other = people.add(record("hr", "1", email="b@example.com", name="Bernd")).person or ""
    assert people.accept(one, other).id == one
    return one, other


def test_two_merged_people_get_their_ids_keys_and_fields_back(people: People) -> None:
    one, other = merged_by_hand(people)
    first, second = people.split(one, who="tester")
    assert [first.id, second.id] == [one, other]
    assert (first.keys, second.keys) == (("email:a@example.com",), ("email:b@example.com",))
    assert (first.fields["name"], second.fields["name"]) == ("Anna", "Bernd")
    assert (first.sources, second.sources) == (("crm",), ("hr",))
    assert current(people, other) == second, "its id no longer redirects to the other"
    assert len(people) == 2


@pytest.mark.mission("C5", "D2")
def test_the_next_import_does_not_merge_them_again(people: People) -> None:
    one, other = merged_by_hand(people)
    people.split(other)
    both = people.add(record("web", "1", email=["a@example.com", "b@example.com"]))
    assert (both.person, both.merged) == (one, ())
    assert people.add(record("hr", "1", email="b@example.com", name="Bernd K.")).person == other
    assert people.add(record("crm", "2", email="b@example.com")).person == other
    assert people.reviews() == []


def test_a_record_that_was_matched_by_similarity_is_split_off_and_stays_separate(people: People) -> None:
    anna = people.add(record("crm", "1", **ANNA, email="anna@example.com")).person or ""
    like = people.add(record("fair", "1", **ANNA))
    assert (like.person, like.rule) == (anna, "similarity")
    first, second = people.split(anna)
    assert (first.id, first.sources, second.sources) == (anna, ("crm",), ("fair",))
    assert second.id != anna
    [said] = second.contributions
    assert (said.rule, said.confidence) == ("split", 1.0)
    again = people.add(record("fair", "1", **ANNA, Room="7"))
    assert (again.person, again.rule) == (second.id, "split")
    assert people.reviews() == []
    third = people.add(record("expo", "1", **ANNA))
    assert third.person not in (first.id, second.id), (
        "a record that matches both people of a rejected pair matches neither with certainty"
    )


def test_only_the_named_record_is_split_off_even_if_it_has_the_same_key(people: People) -> None:
    one = people.add(record("crm", "1", email="falkberg@example.com", name="Anna Berg")).person or ""
    people.add(record("hr", "1", email="falkberg@example.com", name="Bernd Falk"))
    with pytest.raises(ConfigurationError, match="share strong keys"):
        people.split(one)
    number = current(people, one).contributions[1].number
    first, second = people.split(one, [number])
    assert (first.fields["name"], first.keys) == ("Anna Berg", ("email:falkberg@example.com",))
    assert (second.fields["name"], second.keys) == ("Bernd Falk", ())
    assert people.add(record("hr", "1", email="falkberg@example.com", name="B. Falk")).person == second.id
    assert people.add(record("web", "1", email="falkberg@example.com")).person == first.id


def test_a_split_off_record_that_belongs_to_another_person_now_moves_to_that_person(people: People) -> None:
    one = people.add(record("crm", "1", email="falkberg@example.com", name="Anna Berg")).person or ""
    people.add(record("list", "1", email="falkberg@example.com", name="Bernd Falk"))
    number = current(people, one).contributions[1].number
    people.split(one, [number])
    renumbered = people.add(record("list", "1", email="falkberg@example.com", name="Carla Dorn", city="Paris"))
    assert (renumbered.person, renumbered.rule) == (one, "key:email")


def test_no_person_gets_the_id_of_another(people: People) -> None:
    first = people.add(record("crm", "1", email="a@example.com")).person or ""
    anna = people.add(record("list", "1", **ANNA)).person or ""
    bernd = people.add(record("list", "1", name="Bernd Krause", city="Hamburg", country="DE")).person or ""
    people.accept(first, bernd)
    one, other = people.split(first)
    assert one.id == first
    assert other.id not in (first, anna, bernd), "the id generated from this record belongs to Anna, another person"
    assert other.fields["name"] == "Bernd Krause"
    assert current(people, anna).fields["name"] == "Anna Schmidt"


def test_many_records_are_split_off_in_one_call_and_none_is_left_over(people: People) -> None:
    ids = [people.add(record("a", str(n), email=f"{n}@example.com", name=f"N {n}")).person or "" for n in range(5)]
    before = partition(people)
    for other in ids[1:]:
        people.accept(ids[0], other)
    assert len(people) == 1
    assert [one.id for one in people.split(ids[3])] == ids
    assert partition(people) == before
    assert people.without_records() == []


def test_what_cannot_be_split_says_why_and_changes_nothing(people: People) -> None:
    one, _ = merged_by_hand(people)
    numbers = [part.number for part in current(people, one).contributions]
    before = everything(people)
    with pytest.raises(ConfigurationError, match="no person 'p999'"):
        people.split("p999")
    with pytest.raises(ConfigurationError, match="name some of these, but not all"):
        people.split(one, numbers)
    with pytest.raises(ConfigurationError, match="name some of these"):
        people.split(one, [999])
    assert everything(people) == before


def test_people_without_any_record_are_listed(people: People) -> None:
    anna = people.add(record("list", "1", **ANNA)).person or ""
    people.add(record("list", "1", name="Bernd Krause", city="Hamburg", country="DE"))
    assert [one.id for one in people.without_records()] == [anna]


@pytest.mark.mission("C5")
def test_without_similarity_only_keys_distinguish_people(tmp_path: Path) -> None:
    with People(f"sqlite:///{tmp_path}/people.db", similarity=False) as people:
        decisions = people.add_many(
            [record("a", "1", **ANNA), record("a", "2", **ANNA), record("a", "3", email="a@b.example")]
        )
        assert [one.action for one in decisions] == ["created"] * 3
        assert decisions[1].reason == "no person has any of its keys"
        assert people.add(record("b", "1", email="A@b.example", **ANNA)).person == decisions[2].person
        assert people.reviews() == []
    with People(f"sqlite:///{tmp_path}/people.db") as people:
        assert people.add(record("c", "1", **ANNA)).rule == "similarity", "the index was kept"


async def test_the_same_on_an_event_loop(tmp_path: Path) -> None:
    async with AsyncPeople(f"sqlite:///{tmp_path}/people.db") as people:
        one = (await people.add(record("crm", "1", email="a@example.com"))).person or ""
        other = (await people.add(record("hr", "1", email="b@example.com"))).person or ""
        await people.accept(one, other)
        assert [person.id for person in await people.split(one)] == [one, other]
        assert await people.without_records() == []
