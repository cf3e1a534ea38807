"""In any order of the rows, and however often they are imported: the same people."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.imports import import_file
from onceward.people import People
from tests.imports.files import write

emails = st.sampled_from(["anna@example.com", "Anna@example.com", "bo@example.com", "carl@example.com", "none"])
rows = st.lists(st.tuples(emails, st.just(""), st.sampled_from(["A", "B", "C"])), min_size=1, max_size=12)


def known(people: People) -> dict[tuple[str, ...], list[tuple[str, str]]]:
    """Return the fields of every person, by the person's keys."""
    return {one.keys: sorted((part["email"], part["Team"]) for part in one.of("csv")) for one in people}


@given(rows, st.integers(1, 5), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_order_batches_and_repeats_do_not_change_the_people(
    table: list[tuple[str, str, str]], batch: int, dice: random.Random
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        People("sqlite://:memory:") as one,
        People("sqlite://:memory:") as other,
    ):
        file = Path(folder) / "users.csv"
        first = import_file(write(file, table), one, batch=batch)
        before = known(one)
        shuffled = table[:]
        dice.shuffle(shuffled)
        again = import_file(write(file, shuffled), one)
        fresh = import_file(file, other)
        assert known(one) == known(other) == before
        assert first.counts.rows == again.counts.rows == fresh.counts.rows == len(table)
        assert first.counts.rejected == fresh.counts.rejected == sum(email == "none" for email, _, _ in table)
        if not again.replayed:
            assert again.counts.skipped == len(table) - first.counts.rejected
