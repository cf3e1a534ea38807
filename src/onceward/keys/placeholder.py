"""Convert the value of a template's placeholder to text.

| value                                   | text                                               |
|-----------------------------------------|----------------------------------------------------|
| `str` and its subclasses                | the plain string                                   |
| `int`                                   | decimal digits                                     |
| `Decimal`                               | without trailing zeros and exponent: `1.1`, `100`  |
| `UUID`                                  | `12345678-1234-5678-1234-567812345678`             |
| `date`                                  | `2026-01-31`                                       |
| `datetime` with a time zone             | in UTC: `2026-01-31T12:00:00+00:00`                |
| member of an `Enum`                     | the text of its value                              |

Other types have several usual texts (`1.0` or `1`, `True` or `true`), so they raise `InvalidKey`.
"""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from typing import Final
from uuid import UUID

from onceward.errors import InvalidKey

from .shape import class_name

MAX_DIGITS: Final = 1_300  # as many as the integers of the canonical encoding have
LARGE: Final = 2**64  # below it, an integer has few digits
ACCEPTED: Final = "str, int, Decimal, UUID, date, aware datetime or an Enum of these"


def placeholder_text(value: object, field: str) -> str:
    """Return the text of a value. Raise InvalidKey, which names the placeholder `field`, if it has none."""
    while isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)  # not str(): a subclass may override it
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int.__index__(value)) if -LARGE < value < LARGE else _large_int_text(value, field)
    if isinstance(value, UUID):
        return UUID.__str__(value)
    if isinstance(value, dt.datetime):
        return _datetime_text(value, field)
    if isinstance(value, dt.date):
        return dt.date.isoformat(value)
    if isinstance(value, Decimal):
        return _decimal_text(value, field)
    raise InvalidKey(
        f"the placeholder {{{field}}} of the key is {class_name(type(value)).removeprefix('builtins.')}",
        hint=f"a placeholder takes {ACCEPTED}; name a field of it, convert it, or use a callable",
    )


def _large_int_text(value: int, field: str) -> str:
    try:
        text = str(int.__index__(value))
    except ValueError:  # Python's own limit
        text = ""
    if not 0 < len(text) <= MAX_DIGITS:
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key has more than {MAX_DIGITS:,} digits", hint="pass it as text"
        )
    return text


def _decimal_text(value: Decimal, field: str) -> str:
    if not value.is_finite():
        raise InvalidKey(f"the placeholder {{{field}}} of the key is {value}", hint="pass a finite number")
    if not value:
        return "0"  # also for -0
    if abs(value.adjusted()) > MAX_DIGITS or len(value.as_tuple().digits) > MAX_DIGITS:
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key has more than {MAX_DIGITS:,} digits", hint="pass it as text"
        )
    text = Decimal.__format__(value, "f")  # not normalize(), which rounds to the precision of the current context
    return text.rstrip("0").rstrip(".") if "." in text else text


def _datetime_text(value: dt.datetime, field: str) -> str:
    if value.utcoffset() is None:
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key is a datetime without a time zone, which is ambiguous",
            hint="use an aware one, such as datetime.now(UTC)",
        )
    if getattr(value, "nanosecond", 0):  # of a subclass; they would be truncated silently
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key is more precise than microseconds", hint="pass it as text"
        )
    try:
        return dt.datetime.isoformat(dt.datetime.astimezone(value, dt.UTC))
    except OverflowError:
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key is not within the years 1 to 9999 in UTC", hint="pass it as text"
        ) from None
