"""Readable text of keys for logs, pages and errors. It never decides whether two keys are equal."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from typing import Final

MAX_TEXT: Final = 200  # characters; fits in any store and in a log line
_LONG_INT_BITS: Final = 256  # formatting a huge int is slow, and Python refuses it above 4,300 digits
_SCALARS: Final = (int, float, decimal.Decimal, uuid.UUID, dt.date, dt.time, dt.timedelta)


def escape(text: str) -> str:
    """Escape control, bidirectional, invisible and unpaired characters. Escaping twice changes nothing."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def truncate(text: str, suffix: str) -> str:
    """Return at most `MAX_TEXT` characters. A longer text ends in `suffix`, which keeps it distinguishable."""
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT - len(suffix) - 1]}…{suffix}"


def readable(value: object) -> str:
    """Return a short text for simple values and tuples of them; "" for others, whose content is not for logs."""
    if type(value) is str:
        return escape(value) if len(value) <= MAX_TEXT else escape(value[: MAX_TEXT + 1])
    if isinstance(value, tuple | list) and len(value) <= MAX_TEXT:
        parts = [_simple(part) for part in value]
        return f"({', '.join(parts)})" if all(parts) else ""
    return _simple(value)


def _simple(value: object) -> str:
    if type(value) is int:
        return _number(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, str):
        return escape(value[: MAX_TEXT + 1])
    if isinstance(value, bytes | bytearray):
        return repr(bytes(value[:MAX_TEXT]))
    if value is None or isinstance(value, _SCALARS):
        return _number(value)
    return ""


def _number(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > _LONG_INT_BITS:
        return f"int of {value.bit_length()} bits"
    return escape(str(value))
