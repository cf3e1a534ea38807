"""Encode values in PostgreSQL's binary format. Arrays are packed here, so that a batch needs one call per column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import add
from struct import Struct, error, pack
from typing import Any, Final

Encode = Callable[[Any], bytes]

ESCAPE: Final = "\ufdd0"
"""PostgreSQL's text cannot contain NUL. It is written as this noncharacter and a 0, so that texts stay distinct."""

MAX_BIGINT: Final = 2**63 - 1
"""The largest bigint. In µs this is the year 294,247: practically never."""

OIDS: Final = {"boolean": 16, "bytea": 17, "bigint": 20, "smallint": 21, "integer": 23, "text": 25, "xid": 28}

_BIGINT, _LENGTH, _ARRAY, _XID = Struct(">q"), Struct(">i"), Struct(">iiIii"), Struct(">I")
_NULL: Final = _LENGTH.pack(-1)
_EMPTY: Final = Struct(">iiI")


def encode_text(text: str) -> bytes:
    """Encode any text. Lone surrogates, which no database accepts, are escaped."""
    if "\0" in text or ESCAPE in text:
        text = text.replace(ESCAPE, ESCAPE * 2).replace("\0", f"{ESCAPE}0")
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def escape(text: str) -> str:
    """Return the text as PostgreSQL stores it."""
    return encode_text(text).decode()


def unescape(text: str) -> str:
    if ESCAPE not in text:
        return text
    parts = text.split(ESCAPE * 2)
    return ESCAPE.join(part.replace(f"{ESCAPE}0", "\0") for part in parts)


def encode_bigint(number: int) -> bytes:
    return _BIGINT.pack(min(number, MAX_BIGINT))


def _unchanged(data: bytes) -> bytes:
    return data


def _array(element: int, encode: Encode, values: Sequence[Any]) -> bytes:
    if not values:
        return _EMPTY.pack(0, 0, element)
    header = _ARRAY.pack(1, 1, element, len(values), 1)
    if values.count(values[0]) == len(values):  # most columns of a batch repeat one value
        return header + _element(encode, values[0]) * len(values)
    return header + b"".join([_element(encode, value) for value in values])


def _element(encode: Encode, value: Any) -> bytes:
    if value is None:
        return _NULL
    data = encode(value)
    return _LENGTH.pack(len(data)) + data


def _byteas(values: Sequence[bytes | None], element: int = OIDS["bytea"]) -> bytes:
    """Encode a bytea array without a call for each value: every batch has many of these."""
    if not values or None in values:
        return _array(element, _unchanged, values)
    present: Sequence[Any] = values
    header = _ARRAY.pack(1, 0, element, len(present), 1)
    lengths = set(map(len, present))
    if len(lengths) == 1:
        length = _LENGTH.pack(lengths.pop())
        return header + length + length.join(present)
    prefixes = {length: _LENGTH.pack(length) for length in lengths}
    return header + b"".join(map(add, map(prefixes.__getitem__, map(len, present)), present))


def _texts(values: Sequence[str | None]) -> bytes:
    """Encode a text array, with a fast path for plain ASCII."""
    if not values or None in values or values.count(values[0]) == len(values):
        return _array(OIDS["text"], encode_text, values)
    present: Sequence[Any] = values
    joined = "".join(present)
    if not joined.isascii() or "\0" in joined:
        return _array(OIDS["text"], encode_text, values)
    return _byteas(list(map(str.encode, present)), OIDS["text"])


def _bigints(values: Sequence[int | None]) -> bytes:
    """Encode a bigint array with one call of `pack`."""
    if not values or None in values or values.count(values[0]) == len(values):
        return _array(OIDS["bigint"], encode_bigint, values)
    count = len(values)
    flat = [8] * (2 * count)
    flat[1::2] = values  # type: ignore[assignment]  # no value is None
    try:
        return _ARRAY.pack(1, 0, OIDS["bigint"], count, 1) + pack(">" + "iq" * count, *flat)
    except error:  # a value is larger than a bigint
        return _array(OIDS["bigint"], encode_bigint, values)


_SCALARS: Final[dict[str, Encode]] = {
    "boolean": lambda value: b"\1" if value else b"\0",
    "bytea": _unchanged,
    "bigint": encode_bigint,
    "text": encode_text,
    "xid": _XID.pack,
}

ENCODERS: Final[dict[str, Encode]] = {
    **_SCALARS,
    **{f"{name}[]": partial(_array, OIDS[name], encode) for name, encode in _SCALARS.items()},
    "bigint[]": _bigints,
    "bytea[]": _byteas,
    "text[]": _texts,
}
"""Encoders by the type to which a statement casts its parameter."""
