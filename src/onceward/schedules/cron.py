"""Patterns as people write them, read by cronsim: five fields as in crontab(5), or six with seconds in front."""

from __future__ import annotations

from datetime import UTC, date, datetime

from onceward.errors import ConfigurationError, MissingExtra

from .pattern import Pattern
from .slots import Timetable

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = 5
MILLENNIUM = 946_684_800_000_000  # 2000-01-01: any day would do to see whether a pattern ever comes


def timetable(text: str, zone: str) -> Timetable:
    """The pattern in the time zone. Refuses what cannot be read, and what never comes."""
    table = Timetable(pattern_of(text), checked_zone(zone))
    if table.next(MILLENNIUM) is None:
        raise ConfigurationError(f"the pattern {text!r} never comes", hint="there is no such date")
    return table


def pattern_of(text: str) -> Pattern:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise MissingExtra("cron patterns need cronsim", hint='pip install "onceward[schedule]"') from error
    if not isinstance(text, str):
        raise ConfigurationError(f"a pattern is text, not {type(text).__name__}", hint='such as "*/5 8-18 * * 1-6"')
    written = NICKNAMES.get(text.strip().lower(), text)
    try:
        read = CronSim(written, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError) as error:
        raise ConfigurationError(
            f"the pattern {text!r} cannot be read: {error}",
            hint='minute, hour, day of month, month, day of week: "*/5 8-18 * * 1-6"',
        ) from error

    def is_on(day: date) -> bool:
        return day.month in read.months and read.match_day(day)

    fields = written.split()
    return Pattern(
        text=text,
        hours=tuple(sorted(read.hours)),
        minutes=tuple(sorted(read.minutes)),
        seconds=tuple(sorted(read.seconds)),
        is_on=is_on,
        fixed=len(fields) == FIELDS and not any(field.startswith("*") for field in fields[:2]),
    )


def checked_zone(zone: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise ConfigurationError(
            f"unknown time zone {zone!r}",
            hint="write an IANA name such as Europe/Berlin or UTC; without a system's zones, install tzdata",
        ) from error
    return zone
