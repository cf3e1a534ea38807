"""One key of bytes says which event is newer: it compares as the tuple of its parts does, everywhere."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceward import InvalidKey, MissingKey
from onceward.latest import Ordering
from onceward.protocol.ordering import CONTENT_BYTES, content_of, decode_ordering, encode_position, instant, position_of

pytestmark = pytest.mark.mission("E6")

LOW, HIGH = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 and 9999
instants = st.tuples(st.integers(LOW, HIGH) | st.integers(-300, 300), st.integers(0, 999))
sequences = st.integers(-(2**800) + 1, 2**800 - 1) | st.integers(-70_000, 70_000)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6) | st.text("a\0\1b", min_size=1)


class Parts(NamedTuple):
    """The parts of an ordering."""

    event_time: tuple[int, int] | None
    sequence: int | None
    publish_time: tuple[int, int] | None
    message_id: str | None

    def order(self, content: bytes) -> bytes:
        return encode_position(*self).order(content)


places = st.builds(Parts, st.none() | instants, st.none() | sequences, st.none() | instants, st.none() | texts)
contents = st.binary(min_size=CONTENT_BYTES, max_size=CONTENT_BYTES)


def as_tuple(place: Parts, content: bytes) -> tuple[Any, ...]:
    """Return the tuple that the bytes stand for: a missing part is lower than any other."""
    parts = (place.event_time, place.sequence, place.publish_time, place.message_id)
    return (*((0,) if part is None else (1, part) for part in parts), content)


@given(places, places, contents, contents)
@example(Parts(None, None, None, "a"), Parts(None, None, None, "a\0"), b"\xff" * CONTENT_BYTES, bytes(CONTENT_BYTES))
@example(Parts(None, None, None, "a"), Parts(None, None, None, "ab"), b"\xff" * CONTENT_BYTES, bytes(CONTENT_BYTES))
@example(Parts(None, -256, None, None), Parts(None, -255, None, None), bytes(CONTENT_BYTES), bytes(CONTENT_BYTES))
@example(Parts((0, 999), None, None, None), Parts((1, 0), None, None, None), bytes(CONTENT_BYTES), bytes(CONTENT_BYTES))
def test_bytes_compare_as_the_tuples_do(one: Parts, other: Parts, mine: bytes, its: bytes) -> None:
    """Total, and injective: equal bytes mean equal tuples."""
    a, b = as_tuple(one, mine), as_tuple(other, its)
    x, y = one.order(mine), other.order(its)
    assert (x < y, x == y) == (a < b, a == b)
    assert (list(x) < list(y)) == (x < y), "byte by byte is what Python's comparison of bytes is"


@given(st.lists(st.tuples(places, contents), max_size=20))
def test_sorting_bytes_is_sorting_tuples(given: list[tuple[Parts, bytes]]) -> None:
    by_bytes = sorted(given, key=lambda one: one[0].order(one[1]))
    assert [as_tuple(*one) for one in by_bytes] == sorted(as_tuple(*one) for one in given)


@given(places, contents)
def test_an_order_decodes_to_its_parts(place: Parts, content: bytes) -> None:
    decoded = decode_ordering(place.order(content))
    assert content_of(place.order(content)) == content
    assert (decoded.sequence, decoded.message_id) == (place.sequence, place.message_id)
    for seen, meant in ((decoded.event_time, place.event_time), (decoded.publish_time, place.publish_time)):
        assert (seen is None) is (meant is None)
        assert meant is None or seen is None or instant(seen, "time")[0] == meant[0]


@given(st.lists(sequences, min_size=2, max_size=2, unique=True))
def test_numbers_compare_as_numbers(numbers: list[int]) -> None:
    one, other = (Parts(None, number, None, None).order(bytes(CONTENT_BYTES)) for number in numbers)
    assert (one < other) == (numbers[0] < numbers[1])


@given(st.datetimes(timezones=st.timezones()), st.timezones())
def test_an_instant_is_the_same_in_every_time_zone(moment: dt.datetime, zone: ZoneInfo) -> None:
    try:
        elsewhere = moment.astimezone(zone)
        text = moment.astimezone(dt.UTC).isoformat()
    except OverflowError:  # at the ends of the calendar
        return
    assert instant(moment, "t") == instant(elsewhere, "t") == instant(text, "t")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-03-01T08:05:00Z", "2026-03-01T09:05:00+01:00"),
        ("2026-03-01T08:05:00.5Z", "2026-03-01t08:05:00.500000z"),
        ("2026-03-01 08:05:00,25Z", "2026-03-01T08:05:00.25+00:00"),
        ("2026-03-01T08:05:00.123456789Z", "2026-03-01T08:05:00.123456789+00:00"),
        ("2026-03-01T08:05:00.1234567Z", "2026-03-01T08:05:00.123456700Z"),
        ("20260301T080500Z", "2026-03-01T08:05Z"),
    ],
)
def test_texts_of_one_instant_are_one_instant(text: str, same: str) -> None:
    assert instant(text, "t") == instant(same, "t")


def test_nanoseconds_count_although_python_has_none() -> None:
    rising = [
        f"2026-03-01T08:05:00.{fraction}Z" for fraction in ("123456", "123456001", "1234567", "123456789", "123457")
    ]
    assert all(instant(low, "t") < instant(high, "t") for low, high in pairwise(rising))


def test_a_fold_is_two_instants() -> None:
    first = dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert instant(first, "t") < instant(first.replace(fold=1), "t")


def test_an_ordering_may_be_given_in_short() -> None:
    moment = dt.datetime(2026, 3, 1, 8, 5, tzinfo=dt.UTC)
    long = position_of(Ordering(event_time=moment))
    assert position_of(moment) == position_of((moment,)) == position_of("2026-03-01T08:05Z") == long
    assert position_of((moment, 7)) == position_of(Ordering(moment, 7))
    assert position_of((None, None, None, "m")) == position_of(Ordering(message_id="m"))


@pytest.mark.parametrize("given", [Ordering(), (), (None, None, None, None)])
def test_an_ordering_that_orders_nothing_is_refused(given: Any) -> None:
    with pytest.raises(MissingKey, match="events cannot be compared"):
        position_of(given)


@pytest.mark.fault("F3", "F5")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dt.datetime(2026, 1, 1), "no time zone"),  # noqa: DTZ001 (that is the point)
        ("2026-01-01T00:00:00", "no time zone"),
        ("2026-01-01", "no time zone"),
        ("yesterday", "is not a time"),
        ("2026-01-01T23:59:60Z", "is not a time"),
        ("2026-01-01T00:00:00.1234567891Z", "more precise than nanoseconds"),
        ((1_700_000_000,), "seconds or milliseconds"),
        ((1.7e9,), "seconds or milliseconds"),
        (1_700_000_000, "ordering cannot be int"),
        ((None, True), "sequence"),
        ((None, 1.5), "sequence"),
        ((None, "7"), "sequence"),
        ((None, 2**801), "sequence"),
        ((None, None, None, 7), "message id is int"),
        ((None, None, None, ""), "message id is empty"),
        ((None, None, None, "\ud800"), "lone surrogate"),
        ((None, None, None, "é" * 600), "1200 bytes"),
        ((None, 1, None, None, None), "ordering cannot be tuple"),
        ({"event_time": "2026-01-01T00:00:00Z"}, "ordering cannot be dict"),
    ],
    ids=repr,
)
def test_an_ordering_without_a_valid_position_is_refused(given: Any, says: str) -> None:
    with pytest.raises(InvalidKey, match=says):
        position_of(given)


def test_a_subclass_that_is_finer_keeps_its_nanoseconds() -> None:
    class Fine(dt.datetime):
        nanosecond = 7

    assert instant(Fine(2026, 1, 1, tzinfo=dt.UTC), "t")[1] == 7
