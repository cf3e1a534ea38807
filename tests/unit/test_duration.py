"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import ConfigurationError
from onceward.protocol.duration import format_duration, microseconds


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("24h", 86_400_000_000),
        ("1h30m", 5_400_000_000),
        ("1h 30m", 5_400_000_000),
        (" 2 d ", 172_800_000_000),
        ("1w", 604_800_000_000),
        ("500ms", 500_000),
        ("0.5s", 500_000),
        ("1.5h", 5_400_000_000),
        ("1m", 60_000_000),
        ("0s", 0),
        (90, 90_000_000),
        (0.25, 250_000),
        (0, 0),
        (timedelta(hours=24), 86_400_000_000),
        (timedelta(microseconds=1), 1),
        (timedelta(days=365 * 10_000), 365 * 10_000 * 86_400_000_000),
    ],
)
def test_a_duration_is_read_to_the_microsecond(written: Any, expected: int) -> None:
    value = microseconds(written)
    assert value == expected
    assert type(value) is int


@pytest.mark.parametrize(
    "written",
    ["", " ", "24", "h", "-5s", "5 apples", "5min", "1e3s", "1.5.5s", "1h-30m", "1m5", "forever", "24H", "1,5h"],
)
def test_a_duration_that_cannot_be_parsed_is_refused_with_the_ways_to_write_it(written: str) -> None:
    with pytest.raises(ConfigurationError, match=r'pause is not a duration.*"24h"'):
        microseconds(written, "pause")


@pytest.mark.parametrize("written", [None, True, False, [], b"24h", 1j, float("nan")])
def test_what_is_no_duration_at_all_is_refused(written: Any) -> None:
    with pytest.raises(ConfigurationError, match="pause is not a duration"):
        microseconds(written, "pause")


@pytest.mark.fault("F46")
@pytest.mark.parametrize(
    "written",
    [
        -1,
        -0.5,
        timedelta(microseconds=-1),
        timedelta.max,
        float("inf"),
        float("-inf"),
        10**400,
        365 * 10_000 * 86_400 + 1,
        "3650001d",
    ],
)
def test_a_duration_below_zero_or_beyond_the_calendar_is_refused(written: Any) -> None:
    with pytest.raises(ConfigurationError, match="pause must be between"):
        microseconds(written, "pause")


def test_a_number_of_hundreds_of_digits_is_refused_like_any_that_is_too_large() -> None:
    with pytest.raises(ConfigurationError):
        microseconds("9" * 400 + "s")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0ms"),
        (500_000, "500ms"),
        (1_000_000, "1s"),
        (600_000_000, "10m"),
        (5_400_000_000, "1h30m"),
        (86_400_000_000, "1d"),
        (90_061_000_000, "1d1h"),
        (604_800_000_000, "1w"),
    ],
)
def test_people_read_two_units_at_most(value: int, expected: str) -> None:
    assert format_duration(value) == expected


@given(st.integers(0, 10**9), st.sampled_from(["ms", "s", "m", "h", "d", "w"]), st.integers(0, 999))
def test_parts_add_up(count: int, unit: str, rest: int) -> None:
    units = {"ms": 1_000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6, "w": 604_800 * 10**6}
    expected = count * units[unit] + rest * 1_000
    if expected <= 365 * 10_000 * units["d"]:
        assert microseconds(f"{count}{unit}{rest}ms") == expected
    else:
        with pytest.raises(ConfigurationError):
            microseconds(f"{count}{unit}{rest}ms")
