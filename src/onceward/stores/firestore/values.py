"""Plain values as Firestore's messages have them, and back. Times are µs since 1970, as everywhere in a store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from google.cloud.firestore_v1.types import document as documents
from google.protobuf import timestamp_pb2

Value: Final = documents.Value.pb()
MapValue: Final = documents.MapValue.pb()
ArrayValue: Final = documents.ArrayValue.pb()
Timestamp: Final = timestamp_pb2.Timestamp

NOTHING: Final = Value(null_value=0)

EARLIEST: Final = -62_135_596_800_000_000
LATEST: Final = 253_402_300_799_999_999
"""What a timestamp can say: from the year 1 to the end of 9999, in µs."""

LONGEST_NAME: Final = 1500  # bytes of a member of a map
DEEPEST: Final = 15
"""Maps in maps: Firestore takes twenty."""

SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND: Final = 1_000_000


def text(words: str) -> Any:
    """Lone surrogates are spelled out: an error's text may hold anything, and what is done must be recorded."""
    return Value(string_value=words if words.isascii() else spelled_out(words))


def spelled_out(words: str) -> str:
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def number(value: int) -> Any:
    return Value(integer_value=min(max(value, SMALLEST_INT), LARGEST_INT))


def time(value: int | None) -> Any:
    """A timestamp, as people want to see it; beyond the calendar the number itself."""
    if value is None:
        return NOTHING
    if not EARLIEST <= value <= LATEST:
        return number(value)
    return Value(timestamp_value=timestamp(value))


def timestamp(value: int) -> Any:
    seconds, micros = divmod(value, _SECOND)
    return Timestamp(seconds=seconds, nanos=1000 * micros)


def micros(value: Any) -> int:
    """Of a timestamp."""
    return int(value.seconds) * _SECOND + int(value.nanos) // 1000


def value_of(given: Any, deep: int = 0) -> Any:
    """Any plain value, to be looked at. What Firestore has no type or no room for is shown as text."""
    match given:
        case None:
            return NOTHING
        case bool():
            return Value(boolean_value=given)
        case int():
            return number(given) if SMALLEST_INT <= given <= LARGEST_INT else text(str(given))
        case float():
            return Value(double_value=given)
        case str():
            return text(given)
        case bytes() | bytearray():
            return Value(bytes_value=bytes(given))
        case dt.datetime() if given.tzinfo is not None:
            return time((given - _EPOCH) // dt.timedelta(microseconds=1))
        case Mapping() if deep < DEEPEST and all(isinstance(name, str) and is_member(name) for name in given):
            return Value(map_value=MapValue(fields={name: value_of(one, deep + 1) for name, one in given.items()}))
        case list() | tuple() | set() | frozenset() if deep < DEEPEST:
            return Value(array_value=ArrayValue(values=[_item(one, deep + 1) for one in given]))
        case _:
            return text(str(given))


def _item(given: Any, deep: int) -> Any:
    """Of an array: Firestore takes no arrays in arrays."""
    return text(str(given)) if isinstance(given, list | tuple | set | frozenset) else value_of(given, deep)


def is_member(name: str) -> bool:
    """Whether a map may have a member of this name."""
    fits = 0 < len(name) <= LONGEST_NAME and not (name.startswith("__") and name.endswith("__"))
    try:
        return fits and len(name.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


def plain(value: Any) -> Any:
    """What a value holds: maps as dicts, times as µs since 1970."""
    kind = value.WhichOneof("value_type")
    if kind is None or kind == "null_value":
        return None
    held = getattr(value, kind)
    if kind == "timestamp_value":
        return micros(held)
    if kind == "map_value":
        return {name: plain(one) for name, one in held.fields.items()}
    if kind == "array_value":
        return [plain(one) for one in held.values]
    return held


def size_of(value: Any) -> int:
    """Bytes that Firestore counts for a value."""
    kind = value.WhichOneof("value_type")
    if kind == "string_value":
        return len(value.string_value.encode()) + 1
    if kind == "bytes_value":
        return len(value.bytes_value)
    if kind == "map_value":
        return size_of_fields(value.map_value.fields)
    if kind == "array_value":
        return sum(map(size_of, value.array_value.values))
    return 1 if kind in {"null_value", "boolean_value"} else 8


def size_of_fields(fields: Mapping[str, Any]) -> int:
    return sum(len(name.encode()) + 1 + size_of(value) for name, value in fields.items())
