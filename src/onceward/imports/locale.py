"""How a file writes dates and phone numbers: declared by the user, or detected from its first rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, cast, get_args

from msgspec import Struct

from onceward.errors import ConfigurationError
from onceward.people import normalise
from onceward.people.fields import Preset

from .rows import RowReader, SourceRow

DateOrder = Literal["dmy", "mdy", "ymd"]
ORDERS: Final = get_args(DateOrder)
SAMPLE_ROWS: Final = 1_000
SAMPLE_BYTES: Final = 1 << 20
MONTHS: Final = 12

_DATE: Final = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{2}|\d{4})")
_YEAR_FIRST: Final = re.compile(r"(\d{2})[-/.](\d{1,2})[-/.](\d{1,2})")
_CENTURY: Final = 100
_OLDEST_THIS_CENTURY: Final = 26  # two-digit years above this one are in the last century


class Locale(Struct, frozen=True):
    """The order of day, month and year, and the country of phone numbers without a country code."""

    dates: DateOrder | None = None
    country: str | None = None
    date_fields: tuple[str, ...] = ()
    phone_fields: tuple[str, ...] = ()
    country_field: str = ""
    detected: bool = False
    """True if the order of dates was detected, not declared."""

    ambiguous: bool = False
    """True if the first rows show dates like 03/04/1980 only, or some in each order."""

    def apply(self, fields: dict[str, str]) -> dict[str, str]:
        """Return the fields with dates and phone numbers in international form. Unreadable values stay unchanged."""
        if self.dates is not None:
            for name in self.date_fields:
                if name in fields:
                    fields[name] = iso_date(fields[name], self.dates)
        if self.country is not None:
            for name in self.phone_fields:
                if name in fields and not fields.get(self.country_field, "").strip():
                    fields[name] = _international_phone(fields[name], self.country)
        return fields


def locale_of(preset: Preset, mapped: Iterable[Mapping[str, str]], dates: str | None, country: str | None) -> Locale:
    """Return the declared locale; if the order of dates is not declared, detect it from the mapped rows."""
    date_fields = tuple(name for name, field in preset.fields.items() if field.kind.name == "birth date")
    phone_fields = tuple(name for name, field in preset.fields.items() if field.kind.name == "phone")
    country_field = next((name for name, field in preset.fields.items() if field.kind.name == "country"), "")
    order = _checked_order(dates)
    code = None if country is None else _checked_country(country)
    found = Locale(order, code, date_fields, phone_fields, country_field)
    if order is not None or not date_fields:
        return found
    values = [fields[name] for fields in mapped for name in date_fields if name in fields]
    order, ambiguous = detect_order(values)
    return Locale(order, code, date_fields, phone_fields, country_field, order is not None, ambiguous)


def detect_order(values: Collection[str]) -> tuple[DateOrder | None, bool]:
    """Return the order of day and month, and whether that is uncertain. None: no value shows it."""
    pairs = [(int(found[1]), int(found[2])) for value in values if (found := _DATE.fullmatch(value.strip()))]
    day_first = sum(first > MONTHS for first, _ in pairs)
    month_first = sum(second > MONTHS for _, second in pairs)
    if day_first and month_first:
        return None, True
    if month_first:
        return "mdy", False
    if day_first:
        return "dmy", False
    return None, bool(pairs)


def iso_date(text: str, order: DateOrder) -> str:
    """Return the date as `1980-01-31`, or the text if it is not a date in this order."""
    stripped = text.strip()
    found = _YEAR_FIRST.fullmatch(stripped) if order == "ymd" else _DATE.fullmatch(stripped)
    if found is None:
        return text
    if order == "ymd":
        year, month, day = found.groups()
    elif order == "mdy":
        month, day, year = found.groups()
    else:
        day, month, year = found.groups()
    if len(year) == len("80"):
        year = f"{20 if int(year) <= _OLDEST_THIS_CENTURY else 19}{year}"
    return f"{year}-{month:0>2}-{day:0>2}" if int(month) <= MONTHS else text


def _international_phone(text: str, country: str) -> str:
    try:
        return normalise.phone(text, country)
    except ValueError:
        return text


def _checked_order(dates: str | None) -> DateOrder | None:
    if dates is not None and dates not in ORDERS:
        raise ConfigurationError(
            f"dates={dates!r} is not an order of day, month and year", hint=f"use one of: {', '.join(ORDERS)}"
        )
    return cast("DateOrder | None", dates)


def _checked_country(country: str) -> str:
    code = normalise.country(country)
    if len(code) != len("DE") or not code.isupper():
        raise ConfigurationError(f"country={country!r} is unknown", hint='use a code or a name, such as "US"')
    return code


def sample(rows: RowReader) -> list[SourceRow]:
    """Return the first valid rows."""
    found: list[SourceRow] = []
    for number, row in enumerate(rows):
        if number == SAMPLE_ROWS or rows.position() > SAMPLE_BYTES:
            break
        if isinstance(row, SourceRow):
            found.append(row)
    return found
