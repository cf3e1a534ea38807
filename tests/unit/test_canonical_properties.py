"""No two values have the same encoding, on either path. What counts as "two values" is defined here independently."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import struct
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.errors import InvalidKey
from onceward.keys.canonical import canonical
from onceward.keys.tagged import tagged
from tests.unit.canonical_cases import Colour, Level, Name, Order, OrderId, Point

# A small pool of lookalikes, so that equal and nearly equal values are drawn often.
POOL: list[Any] = [
    None, True, False, 0, 1, -1, 0.0, -0.0, 1.0, "", "0", "1", "True", "None", b"", b"1", Decimal(1), Decimal("1.0"),
    2**64, uuid.UUID(int=1), str(uuid.UUID(int=1)), dt.date(2024, 1, 1), "2024-01-01", Colour.RED, Level.LOW,
    "t", "tt", "t1", b"t", 116, "2024-01-01T00:00:00+00:00",  # like the tags and forms of the encoding itself
    Name("1"), OrderId(1), Point(1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.timedelta(1), dt.time(1),
]  # fmt: skip
plain_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
)
rich_leaves = (
    st.sampled_from(POOL)
    | plain_leaves
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.dates()
    | st.datetimes(timezones=st.just(dt.UTC))
    | st.timedeltas()
)
plain = st.recursive(plain_leaves, lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=8)
keys = rich_leaves | st.tuples(rich_leaves, rich_leaves)
rich = st.recursive(
    rich_leaves,
    lambda each: (
        st.lists(each, max_size=3)
        | st.lists(each, max_size=3).map(tuple)
        | st.dictionaries(keys, each, max_size=3)
        | st.sets(keys, max_size=3)
        | st.builds(Order, each, st.lists(each, max_size=2))
    ),
    max_leaves=8,
)
small = st.recursive(
    st.sampled_from(POOL),
    lambda each: (
        st.lists(each, max_size=2)
        | st.lists(each, max_size=2).map(tuple)
        | st.dictionaries(st.sampled_from(POOL), each, max_size=2)
        | st.frozensets(st.sampled_from(POOL), max_size=2)
    ),
    max_leaves=3,
)


def meaning(value: Any) -> Any:
    """Return type and content in a form that Python compares without converting."""
    kind = type(value)
    if kind is float:
        return kind, struct.pack(">d", value)
    if kind is Decimal:
        return kind, value.as_tuple()
    if kind is dict:
        return kind, frozenset((meaning(key), meaning(each)) for key, each in value.items())
    if kind in (set, frozenset):
        return set, frozenset(meaning(each) for each in value)
    if kind in (list, tuple, Point):
        return kind, tuple(meaning(each) for each in value)
    if kind is Order:
        return kind, meaning(value.id), meaning(value.lines)
    return kind, value


@pytest.mark.mission("B1")
@pytest.mark.rival(8)
@pytest.mark.fault("F7", "F11", "F12")
@settings(max_examples=1500, deadline=None)
@given(small, small)
def test_encodings_are_equal_exactly_if_type_and_content_are(one: object, other: object) -> None:
    same = meaning(one) == meaning(other)
    assert (canonical(one) == canonical(other)) is same
    assert (tagged(one) == tagged(other)) is same


@settings(max_examples=300, deadline=None)
@given(st.lists(rich, min_size=2, max_size=6))
def test_values_of_any_kind_never_meet(values: list[object]) -> None:
    by_meaning = {meaning(value): canonical(value) for value in values}
    assert len(set(by_meaning.values())) == len(by_meaning)


@pytest.mark.mission("B1")
@pytest.mark.rival(8)
@pytest.mark.fault("F7", "F8", "F11", "F12")
def test_no_two_of_all_small_combinations_of_lookalikes_meet() -> None:
    values: list[Any] = [*POOL, *([one] for one in POOL), *((one,) for one in POOL)]
    for one, other in itertools.product(POOL, repeat=2):
        values += [[one, other], (one, other), [[one], other], [one, (other,)], {one: other}, {one, other}]
    meanings: dict[bytes, set[Any]] = {}
    for value in values:
        for encoding in (canonical(value), b"\x01t" + tagged(value)):
            meanings.setdefault(encoding, set()).add(meaning(value))
    assert [same for same in meanings.values() if len(same) > 1] == []


@settings(max_examples=300, deadline=None)
@given(plain, rich)
def test_the_fast_and_the_tagged_path_never_collide(one: object, other: object) -> None:
    for value in (one, other):
        encoding = canonical(value)
        assert encoding == b"\x01t" + tagged(value) or encoding[:2] == b"\x01f"
        assert canonical((value,)) == b"\x01t" + tagged((value,))
    assert (tagged(one) == tagged(other)) is (meaning(one) == meaning(other))


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(keys, rich, max_size=5), st.randoms(use_true_random=False))
def test_entries_in_another_order_are_the_same_dict(entries: dict[Any, Any], dice: Any) -> None:
    items = list(entries.items())
    dice.shuffle(items)
    assert canonical(dict(items)) == canonical(entries)


@pytest.mark.fault("F10")
@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.floats() | st.binary(), lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=6
    )
)
def test_a_value_is_refused_exactly_if_it_holds_a_float_that_is_not_finite(value: object) -> None:
    if _all_finite(value):
        canonical(value)
    else:
        with pytest.raises(InvalidKey):
            canonical(value)


def _all_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(_all_finite(each) for each in value.values())
    return not isinstance(value, list) or all(_all_finite(each) for each in value)
