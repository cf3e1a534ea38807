"""Parse and format durations: "24h", "1h30m", "500ms", a timedelta, or seconds."""

from __future__ import annotations

import re
from datetime import timedelta

from onceward.errors import ConfigurationError

Duration = timedelta | str | int | float

_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000, "w": 604_800_000_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")
_LARGEST = 10_000 * 365 * 86_400_000_000  # the calendar ends there, so later times cannot be computed

_HINTS = ('write "24h", "1h30m", "500ms", a timedelta, or seconds', 'write "24h", "1h30m", "90s" or "500ms"')
"""Hints for the error. The second is for text input, for example from a shell, where only text is possible."""


def microseconds(duration: Duration, what: str = "duration") -> int:
    """Return the duration in whole microseconds. `what` names the setting in the error."""
    value = _parse(duration, what)
    if not 0 <= value <= _LARGEST:
        raise ConfigurationError(f"{what} must be between 0 and 10,000 years, not {duration!r}")
    return value


def _parse(duration: Duration, what: str) -> int:
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, str):
        parts = _PART.findall(duration)
        if parts and not _PART.sub("", duration.strip()):
            return sum(_rounded(float(number) * _UNITS[unit]) for number, unit in parts)
    elif isinstance(duration, int | float) and not isinstance(duration, bool) and not _is_nan(duration):
        return _rounded(duration * _UNITS["s"])
    raise ConfigurationError(f"{what} is not a duration: {duration!r}", hint=_HINTS[isinstance(duration, str)])


def _rounded(value: float) -> int:
    """Round. Infinity and other values above the maximum become a value that is just too large."""
    return round(min(value, _LARGEST + 1)) if value >= 0 else -1


def _is_nan(value: float) -> bool:
    return value != value  # noqa: PLR0124 (only NaN differs from itself)


def format_duration(value: int) -> str:
    """Format microseconds for people, with at most two units."""
    if value < _UNITS["s"]:
        return f"{value / 1_000:g}ms"
    if value < _UNITS["m"]:
        return f"{value / _UNITS['s']:g}s"
    return "".join(_whole_units(value)[0][:2])


def exact_duration(value: int) -> str:
    """Format microseconds without a loss: parsing the text returns the same value."""
    parts, left = _whole_units(value)
    if left or not parts:
        parts.append(f"{left / 1_000:g}ms")
    return "".join(parts)


def _whole_units(value: int) -> tuple[list[str], int]:
    """Return the units from weeks to seconds, and the microseconds that are left."""
    parts, left = [], value
    for unit in ("w", "d", "h", "m", "s"):
        count, left = divmod(left, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return parts, left
