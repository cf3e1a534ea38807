"""Convert plain values to Firestore messages and back. Times are µs since 1970, as in all stores."""

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

NULL: Final = Value(null_value=0)

MIN_TIME: Final = -62_135_596_800_000_000
MAX_TIME: Final = 253_402_300_799_999_999
"""The range of a timestamp: from the year 1 to the end of 9999, in µs."""

MAX_NAME_BYTES: Final = 1500  # of a member of a map
MAX_DEPTH: Final = 15
"""Nesting of maps. Firestore allows twenty levels."""

MIN_INT, MAX_INT = -(2**63), 2**63 - 1

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND: Final = 1_000_000


def text(content: str) -> Any:
    """Encode a text, escaping lone surrogates: an error's text may contain any characters and must be recordable."""
    return Value(string_value=content if content.isascii() else escape_surrogates(content))


def escape_surrogates(content: str) -> str:
    return content.encode("utf-8", "backslashreplace").decode("utf-8")


def number(value: int) -> Any:
    return Value(integer_value=min(max(value, MIN_INT), MAX_INT))


def time(value: int | None) -> Any:
    """Encode a time as a readable timestamp, or as a number if it is outside a timestamp's range."""
    if value is None:
        return NULL
    if not MIN_TIME <= value <= MAX_TIME:
        return number(value)
    return Value(timestamp_value=timestamp(value))


def timestamp(value: int) -> Any:
    seconds, micros = divmod(value, _SECOND)
    return Timestamp(seconds=seconds, nanos=1000 * micros)


def micros(value: Any) -> int:
    """Return the µs since 1970 of a timestamp."""
    return int(value.seconds) * _SECOND + int(value.nanos) // 1000


def value_of(given: Any, depth: int = 0) -> Any:
    """Encode any plain value for display. What Firestore has no type for, or cannot nest, becomes text."""
    match given:
        case None:
            return NULL
        case bool():
            return Value(boolean_value=given)
        case int():
            return number(given) if MIN_INT <= given <= MAX_INT else text(str(given))
        case float():
            return Value(double_value=given)
        case str():
            return text(given)
        case bytes() | bytearray():
            return Value(bytes_value=bytes(given))
        case dt.datetime() if given.tzinfo is not None:
            return time((given - _EPOCH) // dt.timedelta(microseconds=1))
        case Mapping() if depth < MAX_DEPTH and all(isinstance(name, str) and is_valid_member(name) for name in given):
            return Value(map_value=MapValue(fields={name: value_of(one, depth + 1) for name, one in given.items()}))
        case list() | tuple() | set() | frozenset() if depth < MAX_DEPTH:
            return Value(array_value=ArrayValue(values=[_item(one, depth + 1) for one in given]))
        case _:
            return text(str(given))


def _item(given: Any, depth: int) -> Any:
    """Encode an item of an array. Firestore does not allow arrays in arrays."""
    return text(str(given)) if isinstance(given, list | tuple | set | frozenset) else value_of(given, depth)


def is_valid_member(name: str) -> bool:
    """Return whether a map may have a member of this name."""
    fits = 0 < len(name) <= MAX_NAME_BYTES and not (name.startswith("__") and name.endswith("__"))
    try:
        return fits and len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def plain(value: Any) -> Any:
    """Decode a value: maps become dicts, times µs since 1970."""
    kind = value.WhichOneof("value_type")
    if kind is None or kind == "null_value":
        return None
    content = getattr(value, kind)
    if kind == "timestamp_value":
        return micros(content)
    if kind == "map_value":
        return {name: plain(one) for name, one in content.fields.items()}
    if kind == "array_value":
        return [plain(one) for one in content.values]
    return content


def value_at(fields: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the encoded value at a path of a document, or None if there is none."""
    for step in path[:-1]:
        fields = fields[step].map_value.fields if step in fields else {}
    return fields.get(path[-1])


def plain_at(fields: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the decoded value at a path of a document, or None if there is none."""
    value = value_at(fields, path)
    return None if value is None else plain(value)


def size_of(value: Any) -> int:
    """Return the bytes that Firestore counts for a value."""
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
