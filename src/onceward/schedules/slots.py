"""Slots: the instants that a pattern matches in a time zone, in µs since 1970. No clock: the caller passes the time.

A *fixed* time (`30 2 * * *`) is a wall-clock time. It happens once a day, as in Debian's cron. If the clocks skip it,
it happens right after the gap. If they show it twice, the first one counts. Several fixed times in a gap are one slot.

Any other pattern (`*/5 * * * *`) matches every instant at which the local clock shows a matching time. A time that the
clocks skip does not happen, and a time that they show twice happens twice.

Slots are computed forward in time only. To search backward, start from an earlier instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cached_property
from itertools import product

from msgspec import Struct

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
HOUR = 3600
"""Seconds. Within an hour, the clocks change at most once: no time zone has ever changed faster."""

MAX_YEARS = 50
"""A pattern without a slot in this many years has none: 29 February on a given weekday recurs within 40 years."""

LOOKBACK_SPANS = tuple(timedelta(**{unit: number}) for unit, number in (
    ("minutes", 1), ("hours", 1), ("days", 1), ("days", 32), ("days", 366), ("days", 9 * 366),
    ("days", MAX_YEARS * 366),
))  # fmt: skip
"""How far back to search for the latest slot: the shortest span first, because most patterns match often."""


def datetime_of(instant: int) -> datetime:
    return EPOCH + instant * MICROSECOND


def instant_of(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


class Pattern(Struct, frozen=True):
    """The times of a day, sorted, and the dates to which they apply.

    `fixed` is as in Debian's cron: neither the minute nor the hour begins with a star, so the pattern means local
    wall-clock time. All other patterns mean elapsed time.
    """

    text: str
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    matches_date: Callable[[date], bool]
    fixed: bool


class Timetable(Struct, frozen=True, dict=True):
    """A pattern in a time zone."""

    pattern: Pattern
    zone: str

    @cached_property
    def time_zone(self) -> tzinfo:
        from zoneinfo import ZoneInfo  # imported here: few programs have schedules

        return ZoneInfo(self.zone)

    def after(self, instant: int) -> Iterator[int]:
        """Yield every slot after this instant, in order, until the calendar or the pattern ends."""
        slots = self._fixed(datetime_of(instant)) if self.pattern.fixed else self._elapsed(datetime_of(instant))
        return map(instant_of, slots)

    def next(self, instant: int) -> int | None:
        """Return the first slot after this instant."""
        return next(self.after(instant), None)

    def between(self, after: int, until: int) -> Iterator[int]:
        """Yield the slots after `after`, up to and including `until`."""
        for slot in self.after(after):
            if slot > until:
                return
            yield slot

    def latest(self, instant: int) -> int | None:
        """Return the last slot at or before this instant."""
        for span in LOOKBACK_SPANS:
            latest = None
            for latest in self.between(instant - span // MICROSECOND, instant):  # noqa: B007 (the last one counts)
                pass
            if latest is not None:
                return latest
        return None

    def _fixed(self, start: datetime) -> Iterator[datetime]:
        pattern, zone = self.pattern, self.time_zone
        last = start
        for day in _days(start.astimezone(zone).date() - DAY):  # one day earlier, for zones that skip a whole day
            if not pattern.matches_date(day):
                continue
            for hour, minute, second in product(pattern.hours, pattern.minutes, pattern.seconds):
                slot = first_instant(datetime.combine(day, time(hour, minute, second)), zone)
                if slot > last:
                    last = slot
                    yield slot

    def _elapsed(self, start: datetime) -> Iterator[datetime]:
        zone = self.time_zone
        at = start.replace(microsecond=0) + SECOND
        end = min(at.year + MAX_YEARS, 9990)
        while at.year < end:
            local = at.astimezone(zone)
            if not self.pattern.matches_date(local.date()):
                at = _next_date(at, local, zone)
                continue
            remaining = timedelta(seconds=HOUR - local.minute * 60 - local.second)
            last_second = (at + remaining - SECOND).astimezone(zone)
            if last_second.utcoffset() != local.utcoffset():  # clocks change in this hour
                seconds = (at + number * SECOND for number in range(remaining // SECOND))
                yield from (second for second in seconds if self._matches(second.astimezone(zone)))
            elif local.hour in self.pattern.hours:
                yield from self._in_hour(at + remaining - timedelta(seconds=HOUR), at)
            at += remaining

    def _in_hour(self, begin: datetime, start: datetime) -> Iterator[datetime]:
        """Yield the slots, from `start` on, of an hour in which the clocks do not change."""
        for minute, second in product(self.pattern.minutes, self.pattern.seconds):
            slot = begin + timedelta(minutes=minute, seconds=second)
            if slot >= start:
                yield slot

    def _matches(self, local: datetime) -> bool:
        pattern = self.pattern
        return (
            local.second in pattern.seconds
            and local.minute in pattern.minutes
            and local.hour in pattern.hours
            and pattern.matches_date(local.date())
        )


def first_instant(shown: datetime, zone: tzinfo) -> datetime:
    """Return when the local clock first shows this time. If it never does, return the end of the gap."""
    at = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None) == shown:
        return at
    after = zone.utcoffset(shown.replace(tzinfo=zone, fold=1))
    low, high = 0, int((at - shown.replace(tzinfo=zone, fold=1).astimezone(UTC)).total_seconds())
    while low < high:  # find how far before `at` the clocks changed
        middle = (low + high + 1) // 2
        if (at - middle * SECOND).astimezone(zone).utcoffset() == after:
            low = middle
        else:
            high = middle - 1
    return at - low * SECOND


def _days(first: date) -> Iterator[date]:
    last = min(first.year + MAX_YEARS, 9990)
    day = first
    while day.year < last:
        yield day
        day += DAY


def _next_date(at: datetime, local: datetime, zone: tzinfo) -> datetime:
    """Return the first instant of the next local date, or a step towards it if clocks were set back across midnight."""
    midnight = first_instant(datetime.combine(local.date() + DAY, time()), zone)
    return midnight if midnight > at else at + timedelta(seconds=HOUR // 4)
