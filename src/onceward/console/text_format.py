"""Values as text for people: times, durations, numbers, sizes. Jinja escapes what they return."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from markupsafe import Markup
from markupsafe import escape as escape_html

from onceward.administration.times import span
from onceward.keys.readable import escape

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
_STEPS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"))


def iso_time(instant: datetime | None) -> str:
    """Return a time in ISO 8601, or an empty text."""
    return "" if instant is None else instant.isoformat()


def clock_time(instant: datetime | None) -> str:
    """Return a time to the second, in UTC."""
    return "" if instant is None else f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def relative_time(instant: datetime | None, now: datetime) -> str:
    """Return how long ago it was, or how soon it will be, in one unit."""
    if instant is None:
        return ""
    distance = microseconds_of(now - instant)
    text = rough_span(abs(distance))
    if text == "0 s":
        return "now"
    return f"{text} ago" if distance >= 0 else f"in {text}"


def microseconds_of(distance: timedelta) -> int:
    return distance // timedelta(microseconds=1)


def rough_span(microseconds: int) -> str:
    """Return a duration in its largest unit."""
    for size, unit in _STEPS:
        if microseconds >= size:
            return f"{microseconds // size:,} {unit}"
    return "0 s"


def exact_span(microseconds: int | None) -> str:
    """Return a duration with all of its units."""
    return "" if microseconds is None else span(microseconds)


def exact_number(number: object) -> str:
    """Return every digit, with thin groups. No number is rounded."""
    return f"{number:,}" if isinstance(number, int) and not isinstance(number, bool) else str(number)


def percentage(share: float | None) -> str:
    """Return a share as a percentage; a dash if there is none."""
    return "–" if share is None else f"{100 * share:.1f} %"


def prose(text: object) -> Markup:
    """Return sentences with `commands` in backticks as code. The text itself is escaped."""
    parts = printable(text).split("`")
    if len(parts) % 2 == 0:  # a lone backtick belongs to the text
        return escape_html("`".join(parts))
    shown = (Markup("<code>{}</code>").format(one) if n % 2 else escape_html(one) for n, one in enumerate(parts))
    return Markup("").join(shown)


def printable(text: object) -> str:
    """Escape characters that are invisible or change the direction of text, so that a key cannot look like another."""
    return "\n".join(escape(line) for line in str(text).split("\n"))
