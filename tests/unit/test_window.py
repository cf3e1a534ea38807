"""Windows: how long a completed record answers, across changes of the clock and of the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import ConfigurationError
from onceward.protocol.record import Record
from onceward.protocol.requests import FOREVER, ClaimRequest, Complete, Validity, Verdict
from onceward.protocol.transitions import claim, settle
from onceward.protocol.window import (
    Window,
    calendar,
    forever,
    lasting,
    next_local_date,
    parse_window,
    sliding,
    window_from_text,
)

HOUR = 3_600_000_000
DAY = 24 * HOUR
ZONES = ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu", "America/Havana"]


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * 1_000_000


def run_once(record: Record | None, window: Window, claimed: int, completed: int) -> Record:
    """One delivery that must run, claimed and completed at these instants."""
    grant, verdict = claim(record, ClaimRequest(b"id", "s", "k", b"nonce %d" % claimed, lease=DAY), claimed)
    assert verdict is Verdict.ACQUIRED
    done, verdict = settle(
        grant, Complete(b"id", grant.token, grant.nonce, validity=window.validity(claimed)), completed
    )
    assert verdict is Verdict.OK
    assert done is not None
    return done


def asked(record: Record, at: int) -> Verdict:
    return claim(record, ClaimRequest(b"id", "s", "k", b"another", lease=DAY), at)[1]


@pytest.mark.parametrize(
    ("zone", "claimed", "end", "story"),
    [
        ("Europe/Berlin", "2026-11-15T12:00+01:00", "2026-11-16T00:00:00+01:00", "an ordinary day"),
        ("Europe/Berlin", "2026-11-15T00:00+01:00", "2026-11-16T00:00:00+01:00", "its first instant"),
        ("Europe/Berlin", "2026-11-15T23:59:59+01:00", "2026-11-16T00:00:00+01:00", "its last second"),
        ("Europe/Berlin", "2026-03-29T01:30+01:00", "2026-03-30T00:00:00+02:00", "a day of 23 hours"),
        ("Europe/Berlin", "2026-10-25T00:00+02:00", "2026-10-26T00:00:00+01:00", "a day of 25 hours"),
        ("Europe/Berlin", "2026-10-25T02:30+01:00", "2026-10-26T00:00:00+01:00", "the hour that comes twice"),
        ("America/Sao_Paulo", "2018-11-03T12:00-03:00", "2018-11-04T01:00:00-02:00", "midnight is skipped"),
        ("America/Sao_Paulo", "2018-11-04T01:00-02:00", "2018-11-05T00:00:00-02:00", "the day without a midnight"),
        ("America/Sao_Paulo", "2018-02-17T23:30-02:00", "2018-02-18T00:00:00-03:00", "the hour before midnight, twice"),
        ("America/Havana", "2026-10-31T12:00-04:00", "2026-11-01T00:00:00-04:00", "midnight comes twice"),
        ("Pacific/Apia", "2011-12-29T12:00-10:00", "2011-12-31T00:00:00+14:00", "the next date never was"),
        ("UTC", "2028-02-28T12:00+00:00", "2028-02-29T00:00:00+00:00", "a leap day"),
        ("UTC", "2026-12-31T23:00+00:00", "2027-01-01T00:00:00+00:00", "the year's end"),
    ],
)
@pytest.mark.mission("C1")
def test_a_calendar_day_ends_with_the_first_instant_of_the_next_local_date(
    zone: str, claimed: str, end: str, story: str
) -> None:
    until = calendar(zone).validity(instant(claimed)).until
    assert until is not None
    assert datetime.fromtimestamp(until // 1_000_000, ZoneInfo(zone)).isoformat() == end, story


@given(st.datetimes(datetime(2012, 1, 1), datetime(2037, 1, 1)), st.sampled_from(ZONES))  # noqa: DTZ001 (made aware below)
def test_the_end_of_a_calendar_day_is_on_the_next_date_and_a_microsecond_earlier_is_not(
    at: datetime, zone: str
) -> None:
    start = at.replace(tzinfo=UTC)
    claimed = (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    end = next_local_date(claimed, zone)
    today = start.astimezone(ZoneInfo(zone)).date()
    before, after = (
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).astimezone(ZoneInfo(zone)).date()
        for moment in (end - 1, end)
    )
    assert (before, after) == (today, today + timedelta(days=1))


def test_a_claim_between_the_two_midnights_of_one_night_does_not_expire_immediately() -> None:
    claimed = instant("2010-11-06T23:30-03:30")  # at 00:01 Newfoundland set its clocks back to 23:01 of the day before
    assert next_local_date(claimed, "America/St_Johns") > claimed


@pytest.mark.rival(26)
@pytest.mark.mission("C1", "C9")
def test_two_calls_across_midnight_are_one_under_a_lasting_window() -> None:
    late, early = instant("2026-11-15T23:59:59+00:00"), instant("2026-11-16T00:00:01+00:00")
    done = run_once(None, lasting("24h"), late, late)
    assert asked(done, early) is Verdict.REPLAY
    assert asked(done, late + DAY - 1) is Verdict.REPLAY
    assert asked(done, late + DAY) is Verdict.ACQUIRED


@pytest.mark.rival(26)
@pytest.mark.parametrize("hour", range(24))
def test_a_lasting_window_is_the_same_at_every_hour_never_a_bucket(hour: int) -> None:
    start = instant("2026-11-15T00:00+00:00") + hour * HOUR
    done = run_once(None, lasting("1h"), start, start + 7)
    assert done.valid_until == start + 7 + HOUR


@pytest.mark.mission("C1")
def test_two_calls_across_midnight_are_two_under_a_calendar_window_because_it_was_asked_for() -> None:
    late, early = instant("2026-11-15T23:59:59+00:00"), instant("2026-11-16T00:00:01+00:00")
    done = run_once(None, calendar("UTC"), late, late)
    assert asked(done, early - 2_000_000) is Verdict.REPLAY
    assert asked(done, early) is Verdict.ACQUIRED


@pytest.mark.mission("C6")
def test_since_the_attempt_means_that_the_work_itself_uses_up_the_window() -> None:
    start = instant("2026-11-15T12:00+00:00")
    assert run_once(None, lasting("24h", since="attempt"), start, start + HOUR).valid_until == start + DAY
    assert run_once(None, lasting("24h"), start, start + HOUR).valid_until == start + HOUR + DAY


def test_forever_has_no_end() -> None:
    assert forever.validity(0) == FOREVER
    done = run_once(None, forever, HOUR, HOUR)
    assert done.valid_until is None
    assert asked(done, 10_000 * 365 * DAY) is Verdict.REPLAY


def test_a_sliding_window_says_how_far_it_moves() -> None:
    assert sliding("1h").validity(5) == Validity(lasting=HOUR, slide=HOUR)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("forever", forever),
        (forever, forever),
        ("24h", lasting("24h")),
        (86_400, lasting("24h")),
        (timedelta(days=1), lasting("24h")),
        (sliding("1h"), sliding("1h")),
    ],
)
def test_a_window_is_written_in_many_ways(written: Any, expected: Window) -> None:
    assert parse_window(written) == expected


@pytest.mark.parametrize("make", [lasting, sliding, parse_window])
@pytest.mark.parametrize("length", [0, "0s", -1, "soon", None])
def test_a_window_that_remembers_nothing_is_refused(make: Any, length: Any) -> None:
    with pytest.raises(ConfigurationError, match="window"):
        make(length)


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", "Europe", "../../etc/passwd", "Berlin"])
def test_an_unknown_time_zone_is_refused_when_it_is_declared(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        calendar(zone)


def test_a_window_counts_since_completion_or_attempt_and_nothing_else() -> None:
    since: Any = "yesterday"
    with pytest.raises(ConfigurationError, match="since"):
        lasting("24h", since=since)


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (forever, "forever"),
        (lasting("24h"), "lasting 1d"),
        (lasting("90m", since="attempt"), "lasting 1h30m since the attempt"),
        (sliding("1h"), "sliding 1h"),
        (calendar("Europe/Berlin"), "calendar day in Europe/Berlin"),
    ],
)
def test_a_window_describes_itself_and_is_read_back(window: Window, text: str) -> None:
    assert str(window) == text
    assert window_from_text(text) == window


@pytest.mark.parametrize("text", ["", "lasting", "lasting long", "calendar day in Nowhere", "until noon"])
def test_a_text_that_describes_no_window_is_not_read(text: str) -> None:
    assert window_from_text(text) is None
