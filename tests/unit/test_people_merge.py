"""One person out of several contributions: the same ones in any order give the same columns."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from onceward.people import FIRST, LONGEST, PERSON, UNION, prefer
from onceward.people.fields import preset
from onceward.people.merge import Part, merge_parts

POLICIES = {"a": FIRST, "b": LONGEST, "c": UNION, "d": prefer("crm", "web")}
FIELDS = preset(PERSON, policies=POLICIES)
VALUES = st.one_of(st.none(), st.text(max_size=3), st.integers(0, 3), st.lists(st.text(max_size=2), max_size=2))


@st.composite
def contributions(draw: st.DrawFn) -> list[Part]:
    numbers = draw(st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True))
    return [
        Part(
            number,
            draw(st.sampled_from(["crm", "web", "csv"])),
            msgspec.json.encode(draw(st.dictionaries(st.sampled_from("abcde"), VALUES))),
            draw(st.integers(0, 3)),
        )
        for number in numbers
    ]


@given(contributions(), st.randoms())
def test_the_order_of_contributions_does_not_matter(parts: list[Part], dice: Any) -> None:
    shuffled = list(parts)
    dice.shuffle(shuffled)
    assert merge_parts(FIELDS, shuffled) == merge_parts(FIELDS, parts)


@given(contributions())
def test_one_contribution_alone_is_merged_as_twice_the_same(parts: list[Part]) -> None:
    one = parts[0]
    twin = Part(one.number + 100, one.source, one.fields, one.at)
    assert merge_parts(FIELDS, [one]) == merge_parts(FIELDS, [one, twin])


@given(contributions())
def test_what_is_missing_is_never_shown(parts: list[Part]) -> None:
    shown = msgspec.json.decode(merge_parts(FIELDS, parts).fields)
    assert all(value is not None and value not in ("", []) for value in shown.values())
