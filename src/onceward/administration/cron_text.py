"""A cron pattern in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onceward.schedules.cron import NICKNAMES

_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    "", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAY_NAMES: Final = {name[:3].lower(): number for number, name in enumerate(_DAYS[:7])}
_MONTH_NAMES: Final = {name[:3].lower(): number for number, name in enumerate(_MONTHS) if name}
FIELDS: Final = 5
EVERY: Final = ("*", "?")


def cron_text(pattern: str) -> str:
    """Return the pattern in words: "at 03:00 every day". A part that has no simple form is quoted."""
    fields = NICKNAMES.get(pattern.strip().lower(), pattern).split()
    second = ""
    if len(fields) == FIELDS + 1:
        second, *fields = fields
    if len(fields) != FIELDS:
        return pattern
    minute, hour, day, month, weekday = fields
    date = _date_text(day, weekday) or ("" if hour in EVERY else "every day")
    parts = [_time_text(second, minute, hour), date]
    if month not in EVERY:
        parts.append(f"in {_names(month, _MONTHS, _MONTH_NAMES)}")
    return " ".join(part for part in parts if part)


def _time_text(second: str, minute: str, hour: str) -> str:
    if minute.isdecimal() and hour.isdecimal() and (not second or second.isdecimal()):
        seconds = f":{int(second):02}" if second and int(second) else ""
        return f"at {int(hour):02}:{int(minute):02}{seconds}"
    text = _step(minute, "minute")
    if second and second != "0":
        text = _step(second, "second") if minute in EVERY else f"{_step(second, 'second')}, {text}"
    if hour in EVERY:
        return f"{text} of every hour" if text.startswith("at minute") else text
    if hour.isdecimal():
        return f"{text} from {int(hour):02}:00 to {int(hour):02}:59"
    first, dash, last = hour.partition("-")
    if dash and first.isdecimal() and last.isdecimal():
        return f"{text} from {int(first):02}:00 to {int(last):02}:59"
    return f"{text}, {_step(hour, 'hour')}"


def _step(field: str, unit: str) -> str:
    if field in EVERY:
        return f"every {unit}"
    start, slash, size = field.partition("/")
    if slash and start in EVERY and size.isdecimal():
        return f"every {int(size)} {unit}s"
    numbers = field.split(",")
    if all(part.isdecimal() for part in numbers):
        return f"at {unit}{'s' if len(numbers) > 1 else ''} {_listed([str(int(part)) for part in numbers])}"
    return f"at {unit}s {field}"


def _date_text(day: str, weekday: str) -> str:
    """Return the days as text, or "" for every day."""
    texts = []
    if day not in EVERY:
        texts.append("on the last day of the month" if day.upper() == "L" else f"on day {day} of the month")
    if weekday not in EVERY:
        texts.append(f"on {_names(weekday, _DAYS, _DAY_NAMES)}")
    return " or ".join(texts)


def _names(field: str, names: Sequence[str], numbers: dict[str, int]) -> str:
    """Return the names of days or months: "1-5" is "Monday to Friday"."""
    texts = []
    for part in field.split(","):
        first, dash, last = (numbers.get(one.lower(), one) for one in part.partition("-"))
        known = [_name(one, names) for one in ((first, last) if dash else (first,))]
        texts.append(" to ".join(known) if all(known) else part)
    return _listed(texts)


def _name(one: int | str, names: Sequence[str]) -> str:
    number = int(one) if str(one).isdecimal() else -1
    return names[number] if 0 <= number < len(names) else ""


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
