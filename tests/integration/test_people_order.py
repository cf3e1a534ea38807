"""The people depend on the stored records, and not on the order in which these arrived."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.people_data import Maker
from onceward.people import SourceRecord
from tests.people_acceptance import differing_pairs, divided, known_set
from tests.people_backends import record


@pytest.mark.finding("N64")
def test_a_key_hit_also_joins_similar_people_in_every_order() -> None:
    born = {"name": "Anna Schmidt", "date_of_birth": "1980-01-31", "city": "Berlin"}
    rows = [
        record("a", "1", email="anna@example.com"),
        record("b", "1", **born),
        record("c", "1", email="anna@example.com", **born),
    ]
    for order in permutations(rows):
        for batch_size in (1, 3):
            assert len(divided(order, batch_size)) == 1


@pytest.mark.finding("N64")
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_record_that_fits_two_people_belongs_to_neither_in_every_order(batch_size: int) -> None:
    home = {"surname": "Schmidt", "street": "Hauptstr. 5", "postcode": "10115", "city": "Berlin"}
    rows = [
        record("a", "john", given_name="John", date_of_birth="1950-03-01", **home),
        record("a", "jane", given_name="Jane", date_of_birth="1952-11-23", **home),
        record("a", "j", given_name="J", **home),
        record("a", "son", given_name="John", date_of_birth="1981-05-07", **home),
    ]
    found = {frozenset(divided(order, batch_size)) for order in permutations(rows)}
    assert found == {frozenset({frozenset({("a", name)}) for name in ("john", "jane", "j", "son")})}


@pytest.mark.finding("N64")
@pytest.mark.parametrize("name", ["fake_1000", "generated", "febrl1"])
def test_no_pair_differs_over_ten_shuffles(name: str) -> None:
    """The soak does the same with the other febrl sets."""
    known = Maker(11, error_rate=2.0).records(250) if name == "generated" else known_set(name)
    assert differing_pairs(one.record for one in known) == 0


NAMES = st.sampled_from(["", "Anna Schmidt", "Ana Schmidt", "A Schmidt", "Anna Huber", "Bernd Schmidt"])
DATES = st.sampled_from(["", "", "1980-01-31", "1980-01-13", "1951-07-07"])
STREETS = st.sampled_from(["", "Hauptstr. 5", "Hauptstr. 6"])
PHONES = st.sampled_from(["", "", "+49301234567"])
EMAILS = st.sampled_from(["", "", "a@example.com", "b@example.com"])


@pytest.mark.finding("N64")
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(NAMES, DATES, STREETS, PHONES, EMAILS), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
    st.integers(1, 3),
)
def test_random_records_give_the_same_people_in_every_order(
    rows: list[tuple[str, str, str, str, str]], dice: random.Random, batch_size: int
) -> None:
    names = ("name", "date_of_birth", "street", "phone", "email")
    records = [
        SourceRecord("csv", {"city": "Berlin", **dict(zip(names, row, strict=True))}, str(n))
        for n, row in enumerate(rows)
    ]
    expected = divided(records, len(records))
    dice.shuffle(records)
    assert divided(records, batch_size) == expected
