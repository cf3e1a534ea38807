"""Doubtful pairs: a person reviews them, and the answer is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.people import People, Person
from onceward.people import queries as reading
from onceward.people.tables import Tables
from tests.people_backends import BOTH, PROSPECTS, people_url, record

ANNA = {"name": "Anna Schmidt", "city": "Berlin", "country": "DE"}
ANA = ANNA | {"name": "Ana Schmidt"}


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return people_url(request.param, tmp_path, request)


@pytest.fixture
def people(url: str) -> Iterator[People]:
    with People(url, rules=PROSPECTS) as opened:
        yield opened


def pair(people: People) -> tuple[str, str]:
    decisions = [people.add(record("csv", "1", **ANNA)), people.add(record("csv", "2", **ANA))]
    assert decisions[1].action == "to_review"
    return decisions[0].person or "", decisions[1].person or ""


def test_an_accepted_pair_is_one_person_and_the_newer_id_redirects_to_the_older(people: People) -> None:
    anna, ana = pair(people)
    merged = people.accept(ana, anna, who="tester")
    assert merged.id == anna
    assert people.get(ana) == merged
    assert len(merged.contributions) == 2
    assert people.reviews() == []
    assert people.accept(anna, ana) == merged, "accepting again changes nothing"


def test_a_rejected_pair_stays_two_people_and_is_not_asked_about_again(people: People) -> None:
    anna, ana = pair(people)
    people.reject(anna, ana)
    assert people.reviews() == []
    people.add(record("csv", "2", **ANA, Room="7"))
    assert people.reviews() == []
    assert len(people) == 2


def test_a_rejected_pair_is_not_merged_by_a_record_with_both_keys(people: People) -> None:
    one = people.add(record("a", "1", email="a@example.com")).person or ""
    other = people.add(record("b", "1", external_id="C-1")).person or ""
    people.reject(other, one)
    decision = people.add(record("c", "1", email="a@example.com", external_id="C-1"))
    assert (decision.person, decision.merged) == (one, ())
    assert "reviewed as different" in decision.reason
    assert len(people) == 2


def test_a_rejected_pair_is_not_merged_through_a_third_person_who_shares_a_record_with_both(people: People) -> None:
    third = people.add(record("a", "1", email="a@example.com")).person or ""
    one = people.add(record("b", "1", external_id="C-1")).person or ""
    other = people.add(record("c", "1", email="c@example.com")).person or ""
    people.reject(one, other)
    decision = people.add(record("d", "1", email=["a@example.com", "c@example.com"], external_id="C-1"))
    assert (decision.person, decision.merged) == (third, (other,))
    found = [people.get(person) for person in (one, other)]
    assert [person.id for person in found if person is not None] == [one, third]


def test_a_record_that_matches_both_people_of_a_rejected_pair_is_attached_to_neither(people: People) -> None:
    first = people.add(record("a", "1", date_of_birth="1950-03-01", **ANNA)).person or ""
    second = people.add(record("a", "2", date_of_birth="1981-11-23", **ANNA)).person or ""
    assert first != second
    people.reject(first, second)
    doubt = people.add(record("b", "1", **ANNA))
    assert (doubt.action, doubt.candidate) == ("created", first)
    assert 1 - doubt.confidence == pytest.approx(0.5, abs=0.05)


def test_a_rejection_outlives_a_merge_of_one_of_the_two(people: People) -> None:
    elder = people.add(record("old", "1", email="ana@example.com")).person or ""
    anna, ana = pair(people)
    people.reject(anna, ana)
    assert people.accept(elder, ana).id == elder
    assert people.add(record("csv", "1", **ANNA, email="anna@example.com")).person == anna
    both = people.add(record("x", "1", email=["ana@example.com", "anna@example.com"]))
    assert (both.person, both.merged) == (elder, ())


def test_a_rejection_outlives_a_merge_into_a_person_with_an_open_review(people: People) -> None:
    anna, ana = pair(people)
    younger = people.add(record("new", "1", email="anna@example.com")).person or ""
    people.add(record("csv", "2", **ANA, email="ana@example.com"))
    people.reject(younger, ana)
    assert people.accept(anna, younger).id == anna
    assert people.reviews() == [], "it has been reviewed"
    both = people.add(record("x", "1", email=["anna@example.com", "ana@example.com"]))
    assert (both.person, both.merged) == (anna, ())


def test_an_id_redirects_however_often_its_person_was_merged(people: People) -> None:
    ids = [people.add(record("a", str(n), email=f"{n}@example.com")).person or "" for n in range(4)]
    people.accept(ids[3], ids[2])
    people.accept(ids[2], ids[1])
    people.accept(ids[1], ids[0])
    assert [person.id for one in ids if (person := people.get(one)) is not None] == [ids[0]] * 4
    assert len(people) == 1


def test_the_list_of_reviews_is_one_snapshot_although_other_users_answer_concurrently(
    people: People, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna, ana = pair(people)
    read = reading.people

    def meanwhile(tables: Tables, ids: Sequence[str]) -> Iterator[Person]:
        monkeypatch.setattr(reading, "people", read)
        with People(url) as others:
            others.accept(anna, ana)
        return read(tables, ids)

    monkeypatch.setattr(reading, "people", meanwhile)
    [review] = people.reviews()
    assert [review.one.id, review.other.id] == sorted((anna, ana))
    assert people.reviews() == []


def test_unknown_or_identical_people_cannot_be_reviewed(people: People) -> None:
    anna, _ = pair(people)
    with pytest.raises(ConfigurationError, match="no person 'p999'"):
        people.accept(anna, "p999")
    with pytest.raises(ConfigurationError, match="already one person"):
        people.reject(anna, anna)
