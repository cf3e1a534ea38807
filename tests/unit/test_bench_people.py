"""The benchmark of people: what it measures is what it says, on a set that is small enough for every run."""

from __future__ import annotations

from bench.people import measured
from bench.people_data import Known, Maker
from onceward.people import SourceRecord


def test_of_a_made_up_register_what_is_accepted_is_true() -> None:
    found = measured("made up", Maker(11).records(250))
    assert found.accepted > 250
    assert found.right / found.accepted > 0.99
    assert found.f1 > 0.88  # misspelt given names that may be those of twins are asked about
    sure = found.reliability[-1]
    assert sure[4] > 0.99, "matches reported as sure are correct"


def test_pairs_are_counted_as_pairs() -> None:
    def known(entity: str, id: str, email: str) -> Known:
        return Known(SourceRecord("test", {"email": email}, id), entity)

    found = measured(
        "by hand",
        [
            known("a", "1", "a@example.com"),
            known("a", "2", "a@example.com"),
            known("a", "3", "other@example.com"),
            known("b", "4", "a@example.com"),
        ],
    )
    assert (found.records, found.entities, found.people) == (4, 2, 2)
    assert (found.precision, found.recall) == (1 / 3, 1 / 3)
    assert found.f1 == 2 * 1 / (3 + 3)


def test_the_same_seed_makes_the_same_people() -> None:
    assert Maker(5).records(40) == Maker(5).records(40) != Maker(6).records(40)
