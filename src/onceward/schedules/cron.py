"""Parse cron patterns with cronsim: five fields as in crontab(5), or six with seconds first."""

from __future__ import annotations

from datetime import UTC, date, datetime

from onceward.errors import ConfigurationError, MissingExtra

from .slots import Pattern, Timetable

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
REFERENCE_INSTANT = 946_684_800_000_000  # 2000-01-01: any day will do to check whether a pattern ever matches


def timetable(text: str, zone: str) -> Timetable:
    """Return the timetable of the pattern in the time zone. Raise if the pattern is invalid or never matches."""
    table = Timetable(parse_pattern(text), checked_zone(zone))
    if table.next(REFERENCE_INSTANT) is None:
        raise ConfigurationError(f"the pattern {text!r} never matches", hint="there is no such date")
    return table


def parse_pattern(text: str) -> Pattern:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise MissingExtra("cron patterns need cronsim", hint='pip install "onceward[schedule]"') from error
    if not isinstance(text, str):
        raise ConfigurationError(
            f"a pattern must be a string, not {type(text).__name__}", hint='such as "*/5 8-18 * * 1-6"'
        )
    expression = NICKNAMES.get(text.strip().lower(), text)
    try:
        parsed = CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError) as error:
        raise ConfigurationError(
            f"the pattern {text!r} is invalid: {error}",
            hint='minute, hour, day of month, month, day of week: "*/5 8-18 * * 1-6"',
        ) from error

    def matches_date(day: date) -> bool:
        return day.month in parsed.months and parsed.match_day(day)

    fields = expression.split()
    return Pattern(
        text=text,
        hours=tuple(sorted(parsed.hours)),
        minutes=tuple(sorted(parsed.minutes)),
        seconds=tuple(sorted(parsed.seconds)),
        matches_date=matches_date,
        fixed=len(fields) == FIELDS and not any(field.startswith("*") for field in fields[:2]),
    )


def checked_zone(zone: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise ConfigurationError(
            f"unknown time zone {zone!r}",
            hint="use an IANA name such as Europe/Berlin or UTC; if the system has no time zone data, install tzdata",
        ) from error
    return zone
