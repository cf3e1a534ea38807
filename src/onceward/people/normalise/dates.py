"""Dates of birth."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Final

_YEAR_FIRST: Final = re.compile(r"(\d{4})[-/.]?(\d{1,2})[-/.]?(\d{1,2})(?:[T ].*)?")
_DAY_FIRST: Final = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})")
_MONTHS: Final = 12


def birth_date(value: object) -> str:
    """`31.1.1980` → `1980-01-31`. The day comes before the month, unless that is impossible: `1/31/1980` is the same.

    A date that does not exist keeps its digits, so that a typo in one digit can still be recognised.
    """
    if isinstance(value, date | datetime):
        return f"{value:%Y-%m-%d}"
    text = str(value).strip()
    found = _YEAR_FIRST.fullmatch(text)
    if found is not None:
        year, month, day = found.groups()
    else:
        found = _DAY_FIRST.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:40]!r} is not a date")
        day, month, year = found.groups()
        if int(month) > _MONTHS >= int(day):
            day, month = month, day
    return f"{year}-{month:0>2}-{day:0>2}"
