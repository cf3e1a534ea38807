"""Which instants a pattern means: against the calendar, against brute force, against cronsim in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from onceward.schedules.cron import timetable
from onceward.schedules.slots import datetime_of, first_instant, instant_of
from tests.planned import utc


def slots(pattern: str, zone: str, since: datetime, until: datetime) -> list[datetime]:
    return [datetime_of(slot) for slot in timetable(pattern, zone).between(instant_of(since), instant_of(until))]


BERLIN_SPRING = (utc(2026, 3, 28, 12), utc(2026, 3, 30, 12))  # on the 29th, 02:00 becomes 03:00 at 01:00 UTC
BERLIN_AUTUMN = (utc(2026, 10, 24, 12), utc(2026, 10, 26, 12))  # on the 25th, 03:00 becomes 02:00 at 01:00 UTC


@pytest.mark.fault("F48")
@pytest.mark.mission("C3")
@pytest.mark.parametrize(
    ("pattern", "spring", "autumn"),
    [
        ("30 1 * * *", ["29T00:30", "29T23:30"], ["24T23:30", "26T00:30"]),
        ("0 2 * * *", ["29T01:00", "30T00:00"], ["25T00:00", "26T01:00"]),  # after the gap; the first of the fold
        ("30 2 * * *", ["29T01:00", "30T00:30"], ["25T00:30", "26T01:30"]),
        ("0,30 2 * * *", ["29T01:00", "30T00:00", "30T00:30"], ["25T00:00", "25T00:30", "26T01:00", "26T01:30"]),
        ("0 3 * * *", ["29T01:00", "30T01:00"], ["25T02:00", "26T02:00"]),
        ("*/30 2 * * *", ["30T00:00", "30T00:30"],  # real time: not in the gap, twice in the fold
         ["25T00:00", "25T00:30", "25T01:00", "25T01:30", "26T01:00", "26T01:30"]),
        ("0 */12 * * *", ["28T23:00", "29T10:00", "29T22:00", "30T10:00"],
         ["24T22:00", "25T11:00", "25T23:00", "26T11:00"]),
        ("15 2-3 * * *", ["29T01:00", "29T01:15", "30T00:15", "30T01:15"],
         ["25T00:15", "25T02:15", "26T01:15", "26T02:15"]),
    ],
)  # fmt: skip
def test_the_nights_of_the_changes_are_as_debians_cron_has_them(
    pattern: str, spring: list[str], autumn: list[str]
) -> None:
    for span, month, expected in ((BERLIN_SPRING, "2026-03", spring), (BERLIN_AUTUMN, "2026-10", autumn)):
        found = slots(pattern, "Europe/Berlin", *span)
        assert [at.strftime("%Y-%m-%dT%H:%M") for at in found] == [f"{month}-{at}" for at in expected]


@pytest.mark.fault("F48")
@pytest.mark.parametrize(
    ("pattern", "zone", "since", "expected"),
    [
        (
            "30 0 * * *",
            "Africa/Cairo",
            utc(2026, 4, 23, 12),
            ["2026-04-23T22:00", "2026-04-24T21:30"],
        ),  # gap at 0:00
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            utc(2026, 10, 3),
            ["2026-10-03T15:30", "2026-10-04T15:15"],
        ),  # 30 min
        ("*/20 2 * * *", "Australia/Lord_Howe", utc(2026, 4, 4), ["2026-04-04T15:30", "2026-04-04T15:50"]),
        (
            "0 12 * * *",
            "Pacific/Apia",
            utc(2011, 12, 30),
            ["2011-12-30T10:00", "2011-12-30T22:00"],
        ),  # no 30th
        ("0 2 * * *", "Antarctica/Troll", utc(2026, 10, 24, 12), ["2026-10-25T00:00", "2026-10-26T02:00"]),  # two hours
    ],
)
def test_zones_with_other_habits(pattern: str, zone: str, since: datetime, expected: list[str]) -> None:
    after = islice(timetable(pattern, zone).after(instant_of(since)), len(expected))
    assert [datetime_of(slot).strftime("%Y-%m-%dT%H:%M") for slot in after] == expected


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Cairo",
         "America/St_Johns", "Asia/Kathmandu", "Asia/Gaza", "Pacific/Apia"]  # fmt: skip
MINUTES = st.sampled_from(["*", "*/7", "*/30", "0", "30", "5,35", "10-12"])
HOURS = st.sampled_from(["*", "*/6", "2", "1-3", "0,23", "2,14"])
DAYS = st.sampled_from(["*", "1", "13,28", "L", "*/2"])
WEEKDAYS = st.sampled_from(["*", "1-5", "SUN", "0#1"])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    return f"{draw(MINUTES)} {draw(HOURS)} {draw(DAYS)} * {draw(WEEKDAYS)}"


CHANGES = [utc(2026, 3, 7), utc(2026, 3, 28), utc(2026, 4, 4), utc(2026, 4, 23), utc(2026, 10, 3),
           utc(2026, 10, 24), utc(2026, 10, 31), utc(2011, 12, 29), utc(2011, 3, 13)]  # fmt: skip


@st.composite
def changes(draw: st.DrawFn) -> datetime:
    """Times near a change of some clock, and any others."""
    near = draw(st.sampled_from(CHANGES))
    return near + timedelta(seconds=draw(st.integers(0, 3 * 86_400)))


def shown_by_brute_force(pattern: str, zone: str, since: datetime, until: datetime) -> list[datetime]:
    """The definition, minute by minute; cronsim only decides whether a local time matches."""
    reader, clock = timetable(pattern, zone).pattern, ZoneInfo(zone)
    found: set[datetime] = set()
    if not reader.fixed:
        at = since.replace(second=0) + timedelta(minutes=1)
        while at <= until:
            local = at.astimezone(clock)
            if reader.matches_date(local.date()) and local.hour in reader.hours and local.minute in reader.minutes:
                found.add(at)
            at += timedelta(minutes=1)
        return sorted(found)
    wall = (since - timedelta(days=3)).replace(second=0, tzinfo=None)
    while wall <= until.replace(tzinfo=None) + timedelta(days=3):
        if reader.matches_date(wall.date()) and wall.hour in reader.hours and wall.minute in reader.minutes:
            at = first_shown(wall, clock)
            if since < at <= until:
                found.add(at)
        wall += timedelta(minutes=1)
    return sorted(found)


def first_shown(wall: datetime, clock: ZoneInfo) -> datetime:
    """Minute by minute: the first instant at which the clock shows it, or has just jumped over it."""
    longest_change = 25 if clock.key == "Pacific/Apia" else 3
    at = wall.replace(tzinfo=clock, fold=0).astimezone(UTC) - timedelta(hours=longest_change)
    while at.astimezone(clock).replace(tzinfo=None) < wall:
        at += timedelta(minutes=1)
    return at


@given(pattern=patterns(), zone=st.sampled_from(ZONES), since=changes())
def test_slots_are_what_brute_force_finds(pattern: str, zone: str, since: datetime) -> None:
    until = since + timedelta(hours=30)
    assert slots(pattern, zone, since, until) == shown_by_brute_force(pattern, zone, since, until)


@given(pattern=patterns(), zone=st.sampled_from(ZONES), since=changes(), steps=st.integers(1, 30))
def test_slots_grow_and_looking_back_finds_the_same_ones(pattern: str, zone: str, since: datetime, steps: int) -> None:
    table = timetable(pattern, zone)
    found = list(islice(table.after(instant_of(since)), steps))
    assert all(one < other for one, other in pairwise(found))
    assert found[0] > instant_of(since)
    for number, slot in enumerate(found):
        assert table.latest(slot) == slot
        assert table.latest(slot - 1) == (found[number - 1] if number else table.latest(instant_of(since)))
        assert table.next(slot - 1) == slot


@given(pattern=patterns(), since=changes())
def test_in_utc_they_are_what_cronsim_says(pattern: str, since: datetime) -> None:
    ours = list(islice(timetable(pattern, "UTC").after(instant_of(since)), 20))
    assert [datetime_of(slot) for slot in ours] == list(islice(CronSim(pattern, since), 20))


def test_seconds_and_nicknames_are_read_too() -> None:
    since = utc(2026, 1, 1)
    every_ten = slots("*/10 * * * * *", "Europe/Berlin", since, since + timedelta(minutes=1))
    assert [at.second for at in every_ten] == [10, 20, 30, 40, 50, 0]
    assert slots("@daily", "Europe/Berlin", since, since + timedelta(days=1)) == [utc(2026, 1, 1, 23)]
    assert slots("0 0 29 2 *", "UTC", since, utc(2033, 1, 1)) == [utc(2028, 2, 29), utc(2032, 2, 29)]


def test_a_time_that_clocks_skip_is_the_end_of_the_gap_to_the_second() -> None:
    gap = first_instant(datetime(2026, 3, 29, 2, 59, 59), ZoneInfo("Europe/Berlin"))  # noqa: DTZ001 (on the wall)
    assert gap == utc(2026, 3, 29, 1)
