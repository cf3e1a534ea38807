"""Show the store's times and durations to people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload

from onceward.protocol.duration import format_duration

SECOND, MILLISECOND = 1_000_000, 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


def moment(instant: int) -> str:
    """Return a store timestamp as text, to the second."""
    try:
        return f"{_EPOCH + timedelta(microseconds=instant):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return "after the year 9999"


def iso(instant: int | None) -> str | None:
    """Return a store timestamp in ISO 8601."""
    if instant is None:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=instant)).isoformat()
    except OverflowError:
        return None


@overload
def time_of(instant: int) -> datetime: ...
@overload
def time_of(instant: int | None) -> datetime | None: ...
def time_of(instant: int | None) -> datetime | None:
    """Return a store timestamp as a datetime; times after the year 9999 are cut."""
    if instant is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=instant)
    except OverflowError:
        return _LATEST


def span(microseconds: int) -> str:
    """Return a duration as text: never negative, and in whole seconds from one second on."""
    step = SECOND if microseconds >= SECOND else MILLISECOND
    return format_duration(max(microseconds, 0) // step * step)
