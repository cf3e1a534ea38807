"""Many values, encoded together in fewer steps: the same bytes as one by one, whatever is among them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceward import InvalidKey
from onceward.keys.canonical import canonical, canonical_all
from onceward.latest import Ordering
from onceward.protocol.ordering import encode_position, instant, position_of
from onceward.results.codec import PLAIN, Codec
from onceward.results.result_type import ResultType, Unstorable

ID = b"i" * 32
CLOSE = 2**56
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT | st.binary()
)
odd = st.decimals(allow_nan=False, allow_infinity=False) | st.binary().map(bytearray) | st.tuples(leaves)
values = st.recursive(
    leaves | odd, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
many = st.lists(values, max_size=6)


@given(many)
@example([{"a": 1.5}, bytearray(b"x")])
@example([{"a": 1}, {"b": [memoryview(b"x")]}])
def test_canonical_encodings_are_those_of_each(given: list[Any]) -> None:
    assert canonical_all(given) == [canonical(value) for value in given]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), {"deep": [-float("inf")]}, object(), "\ud800"])
def test_what_is_refused_alone_is_refused_among_others(wrong: object) -> None:
    with pytest.raises(InvalidKey):
        canonical_all([{"a": 1}, wrong, {"b": 2.5}])


@given(many)
@example([{"a": 1.5}, bytearray(b"x")])
@example([{"a": 1}, {"b": [bytearray(b"x")]}])
def test_packed_values_are_those_of_each(given: list[Any]) -> None:
    packed = PLAIN.pack_all(given, [ID] * len(given))
    assert packed == [PLAIN.encode(value, ID).data for value in given]
    assert [PLAIN.decode(data, ID) for data in packed] == given


def test_the_limit_holds_for_each_of_many() -> None:
    codec = Codec(ResultType(), max_bytes=50, compress_from=None)
    fits, over = "x" * (50 - 7 - 2), "x" * (50 - 7 - 1)  # after the envelope, and two bytes that say how long it is
    assert [len(one) for one in codec.pack_all([fits, 1], [ID, ID])] == [50, 8]
    with pytest.raises(Unstorable, match="51 bytes, and the limit is 50"):
        codec.pack_all([1, over], [ID, ID])


def test_large_ones_are_compressed_among_small_ones() -> None:
    given = ["x" * 50_000, {"a": 1}]
    assert PLAIN.pack_all(given, [ID, ID]) == [PLAIN.encode(value, ID).data for value in given]


times = st.datetimes(timezones=st.just(dt.UTC))
sequences = st.none() | st.integers(-300, 70_000) | st.integers(CLOSE - 3, CLOSE + 3) | st.integers(0, 2**70)
messages = st.none() | st.text("a\0é", min_size=1, max_size=5)


@pytest.mark.mission("E6")
@given(times, sequences, messages)
def test_the_fast_path_encodes_the_same_position(time: dt.datetime, sequence: int | None, message: str | None) -> None:
    place = position_of(Ordering(time, sequence, None, message))
    assert place == encode_position(instant(time, "time"), sequence, None, message)
    assert place == position_of(Ordering(time.isoformat(), sequence, None, message))
