"""Slots: the instants that a pattern means in a time zone, in µs since 1970. No clock: who asks says when it is.

A *fixed* time (`30 2 * * *`) is a time on the wall. It comes once a day, as Debian's cron has it: if clocks skip it, it
comes right after the gap; if they show it twice, the first one counts. Several fixed times in one gap are one slot.

Any other pattern (`*/5 * * * *`) is a matter of real time: every instant at which a clock on the wall shows a time that
matches. What clocks skip never comes, and what they show twice comes twice.

There is one definition, forwards; whoever looks back looks forward from earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cached_property
from itertools import product

from msgspec import Struct

from .pattern import Pattern

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
HOUR = 3600
"""Seconds. Within an hour clocks change at most once: no zone has ever been quicker."""

YEARS = 50
"""A pattern without a slot in so many years has none: 29 February on a certain weekday comes every 28 at least."""

LOOKS_BACK = tuple(timedelta(**{unit: number}) for unit, number in (
    ("minutes", 1), ("hours", 1), ("days", 1), ("days", 32), ("days", 366), ("days", 9 * 366), ("days", YEARS * 366),
))  # fmt: skip
"""How far back the latest slot is looked for: little at first, because most patterns come often."""


def moment(instant: int) -> datetime:
    return EPOCH + instant * MICROSECOND


def instant_of(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


class Timetable(Struct, frozen=True, dict=True):
    """A pattern in a time zone."""

    pattern: Pattern
    zone: str

    @cached_property
    def clock_on_the_wall(self) -> tzinfo:
        from zoneinfo import ZoneInfo  # here, because few programs have schedules

        return ZoneInfo(self.zone)

    def after(self, instant: int) -> Iterator[int]:
        """Every slot after this instant, in order. Ends only where the calendar does, or the pattern."""
        slots = self._fixed(moment(instant)) if self.pattern.fixed else self._real(moment(instant))
        return map(instant_of, slots)

    def next(self, instant: int) -> int | None:
        """The first slot after this instant."""
        return next(self.after(instant), None)

    def between(self, after: int, until: int) -> Iterator[int]:
        """The slots after the one instant and up to the other, that included."""
        for slot in self.after(after):
            if slot > until:
                return
            yield slot

    def latest(self, instant: int) -> int | None:
        """The last slot at or before this instant."""
        for span in LOOKS_BACK:
            latest = None
            for latest in self.between(instant - span // MICROSECOND, instant):  # noqa: B007 (the last one counts)
                pass
            if latest is not None:
                return latest
        return None

    def _fixed(self, start: datetime) -> Iterator[datetime]:
        pattern, zone = self.pattern, self.clock_on_the_wall
        last = start
        for day in _days(start.astimezone(zone).date() - DAY):  # one earlier, for zones that skip a whole day
            if not pattern.is_on(day):
                continue
            for hour, minute, second in product(pattern.hours, pattern.minutes, pattern.seconds):
                slot = first_instant(datetime.combine(day, time(hour, minute, second)), zone)
                if slot > last:
                    last = slot
                    yield slot

    def _real(self, start: datetime) -> Iterator[datetime]:
        zone = self.clock_on_the_wall
        at = start.replace(microsecond=0) + SECOND
        end = min(at.year + YEARS, 9990)
        while at.year < end:
            local = at.astimezone(zone)
            if not self.pattern.is_on(local.date()):
                at = _next_date(at, local, zone)
                continue
            left = timedelta(seconds=HOUR - local.minute * 60 - local.second)
            if (at + left - SECOND).astimezone(zone).utcoffset() != local.utcoffset():  # clocks change in this hour
                yield from (second for second in _seconds(at, left) if self._matches(second.astimezone(zone)))
            elif local.hour in self.pattern.hours:
                yield from self._in_hour(at + left - timedelta(seconds=HOUR), at)
            at += left

    def _in_hour(self, begin: datetime, start: datetime) -> Iterator[datetime]:
        """The slots of an hour that clocks go through undisturbed, from `start` on."""
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
            and pattern.is_on(local.date())
        )


def first_instant(shown: datetime, zone: tzinfo) -> datetime:
    """When a clock on the wall first shows this time; if it never does, the end of the gap that it falls into."""
    at = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None) == shown:
        return at
    after = zone.utcoffset(shown.replace(tzinfo=zone, fold=1))
    low, high = 0, int((at - shown.replace(tzinfo=zone, fold=1).astimezone(UTC)).total_seconds())
    while low < high:  # the last instant before `at` from which on clocks show the time after the gap
        middle = (low + high + 1) // 2
        if (at - middle * SECOND).astimezone(zone).utcoffset() == after:
            low = middle
        else:
            high = middle - 1
    return at - low * SECOND


def _days(first: date) -> Iterator[date]:
    last = min(first.year + YEARS, 9990)
    day = first
    while day.year < last:
        yield day
        day += DAY


def _seconds(start: datetime, stretch: timedelta) -> Iterator[datetime]:
    return (start + number * SECOND for number in range(int(stretch.total_seconds())))


def _next_date(at: datetime, local: datetime, zone: tzinfo) -> datetime:
    """The first instant of the next local date. Where clocks were set back across midnight, a step towards it."""
    midnight = first_instant(datetime.combine(local.date() + DAY, time()), zone)
    return midnight if midnight > at else at + timedelta(seconds=HOUR // 4)
