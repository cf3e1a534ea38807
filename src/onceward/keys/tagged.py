"""The tagged variant of the canonical encoding: every value is a tag, a length and a body.

A body is raw bytes or a sequence of encoded values. Each has its own length, so no two values share an encoding.
The format is frozen by the vectors in `tests/unit/golden_canonical.json`; a change needs a new encoder version.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

from .shape import FieldMissing, class_name, instance_of

MAX_DEPTH: Final = 100  # deeper data is a mistake or an attack, and recursion stays far from Python's own limit
MAX_BYTES: Final = 256 << 20  # larger data is a file: use its content key
MAX_ITEMS: Final = 5_000_000  # stops shared sub-values that expand exponentially, within seconds
MAX_INT_BITS: Final = 4096

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MAX_PATH: Final = 120


class CannotEncode(Exception):
    """A value cannot be encoded. Collects the path to it, innermost step first."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.steps: list[str] = []

    def path(self, root: str) -> str:
        """Return a readable path, such as `payload.items[3].owner`."""
        path = (root + "".join(reversed(self.steps))).lstrip(".")
        return path if len(path) <= _MAX_PATH else path[:_MAX_PATH] + "…"


def tagged(value: object) -> bytes:
    """Encode any supported value."""
    return _Encoder().encode(value, 0)


def _block(tag: bytes, body: bytes) -> bytes:
    if len(body) > MAX_BYTES:
        raise CannotEncode(f"larger than {MAX_BYTES >> 20} MiB", "hash the content instead (content_key)")
    return tag + len(body).to_bytes(4, "big") + body


def _step(key: object) -> str:
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"[{key!r:.40}]"
    return f"[{key}]" if type(key) is int and abs(key) < 1 << 64 else f"[{type(key).__name__}]"


class _Encoder:
    """Encodes one value. Counts items, because shared sub-values can expand exponentially."""

    def __init__(self) -> None:
        self.items = 0
        self.bytes = 0

    def encode(self, value: object, depth: int) -> bytes:
        self.items += 1
        if self.items > MAX_ITEMS:
            raise CannotEncode(f"more than {MAX_ITEMS:,} items", "hash the content instead, or pass a key=")
        if depth > MAX_DEPTH:
            raise CannotEncode(
                f"nested more than {MAX_DEPTH} levels deep, or contains itself", "pass a key=, or flatten it"
            )
        leaf = _LEAVES.get(type(value))
        if leaf is not None:
            encoded = leaf(value)
            self._count(encoded)
            return encoded
        if type(value) is dict:
            return self._dict(value, depth)
        if type(value) is list:
            return self._sequence(b"l", value, depth)
        if type(value) is tuple:
            return self._sequence(b"u", value, depth)
        if type(value) is set or type(value) is frozenset:
            return self._set(value, depth)
        return self._instance(value, depth)

    def _count(self, encoded: bytes) -> None:
        self.bytes += len(encoded)
        if self.bytes > MAX_BYTES:
            raise CannotEncode(f"larger than {MAX_BYTES >> 20} MiB", "hash the content instead (content_key)")

    def _sequence(self, tag: bytes, values: Iterable[object], depth: int) -> bytes:
        encoded = []
        for index, value in enumerate(values):
            try:
                encoded.append(self.encode(value, depth + 1))
            except CannotEncode as error:
                error.steps.append(f"[{index}]")
                raise
        return _block(tag, b"".join(encoded))

    def _set(self, values: Iterable[object], depth: int) -> bytes:
        try:
            return _block(b"s", b"".join(sorted(self.encode(value, depth + 1) for value in values)))
        except CannotEncode as error:
            error.steps.append("{member}")
            raise

    def _dict(self, entries: dict[Any, object], depth: int) -> bytes:
        encoded = []
        for key, value in entries.items():
            try:
                encoded.append((self.encode(key, depth + 1), self.encode(value, depth + 1)))
            except CannotEncode as error:
                error.steps.append(_step(key))
                raise
        encoded.sort()
        return _block(b"m", b"".join(part for pair in encoded for part in pair))

    def _instance(self, value: object, depth: int) -> bytes:
        try:
            instance = instance_of(value)
        except FieldMissing as missing:
            raise CannotEncode(f"{class_name(type(value))} has no value for its field {missing}") from None
        if instance is not None:
            return _block(b"o", _str(instance.of) + self.encode(instance.content, depth))
        for base, leaf in _LEAVES.items():
            if isinstance(value, base):  # a subclass of a date, a UUID, a Decimal ...
                return _block(b"o", _str(class_name(type(value))) + leaf(value))
        raise CannotEncode(f"{class_name(type(value))} has no declared content, so two of them cannot be compared")


def _int(value: int) -> bytes:
    if value.bit_length() > MAX_INT_BITS:
        raise CannotEncode(
            f"an integer of {value.bit_length():,} bits; the limit is {MAX_INT_BITS:,}", "pass it as bytes"
        )
    return _block(b"i", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _float(value: float) -> bytes:
    if not math.isfinite(value):
        raise CannotEncode(f"{value} is not a number that can be compared", "replace it with None, or omit it")
    return _block(b"f", struct.pack(">d", value))


def _str(value: str) -> bytes:
    try:
        return _block(b"t", value.encode())
    except UnicodeEncodeError:
        raise CannotEncode(
            "a string with a lone surrogate cannot be encoded", "decode it with the right encoding, or pass bytes"
        ) from None


def _bytes(value: bytes | bytearray | memoryview) -> bytes:
    if isinstance(value, memoryview) and not value.c_contiguous:
        raise CannotEncode("a memoryview that is not contiguous", "pass bytes(view)")
    return _block(b"b", bytes(value))


def _decimal(value: decimal.Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()  # not str(): its letter case follows the current decimal context
    if not isinstance(exponent, int):
        raise CannotEncode(f"{value} is not a number that can be compared", "replace it with None, or omit it")
    return _block(b"d", f"{sign}:{exponent}:".encode() + bytes(digits))


def _refuse_nanoseconds(value: object) -> None:
    """Reject subclasses with nanoseconds, which would be truncated silently."""
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise CannotEncode("a time more precise than microseconds", "pass its nanoseconds as an integer")


def _datetime(value: dt.datetime) -> bytes:
    if value.utcoffset() is None:
        raise CannotEncode("a datetime without a time zone is ambiguous", "use an aware one, such as datetime.now(UTC)")
    _refuse_nanoseconds(value)
    return _block(b"D", _span(dt.datetime.__sub__(value, _EPOCH)))


def _timedelta(value: dt.timedelta) -> bytes:
    _refuse_nanoseconds(value)
    return _block(b"p", _span(dt.timedelta.__add__(value, dt.timedelta(0))))


def _span(value: dt.timedelta) -> bytes:
    return struct.pack(">iII", value.days, value.seconds, value.microseconds)


def _date(value: dt.date) -> bytes:
    return _block(b"y", dt.date.toordinal(value).to_bytes(4, "big"))


def _time(value: dt.time) -> bytes:
    offset = value.utcoffset()
    if value.tzinfo is not None and offset is None:
        raise CannotEncode("a time whose zone has no offset without a date", "use an aware datetime or a naive time")
    clock = struct.pack(">BBBI", value.hour, value.minute, value.second, value.microsecond)
    return _block(b"h", clock + (b"" if offset is None else _span(offset)))


# Exact type → encoding. `datetime` comes before `date`, its base, because subclasses are looked up in this order.
_LEAVES: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: _block(b"0", b""),
    bool: lambda value: _block(b"?", b"\1" if value else b"\0"),
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    decimal.Decimal: _decimal,
    dt.datetime: _datetime,
    dt.date: _date,
    dt.time: _time,
    dt.timedelta: _timedelta,
    uuid.UUID: lambda value: _block(b"U", value.bytes),
}
