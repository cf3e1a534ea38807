"""The order of events: which of two is newer, and the bytes that every store compares.

The parts are compared in this order, and a missing part sorts below every present one:

| part | how it is encoded | bytes |
|---|---|---|
| event time | the instant in µs since 1970, made positive, then the nanoseconds below | 11 |
| sequence | an integer: sign and length first, then its bytes | 1 to 101 |
| publish time | like the event time | 11 |
| message id | UTF-8, a NUL as `00 01`, ended by `00 00` | its length + 3 |
| content hash | version of the encoder and truncated SHA-256 of the content | 16 |

A missing part is one zero byte. Every part is self-delimiting, so keys compare byte by byte like their tuples, and only
equal tuples have equal keys. The content hash comes last: if two events tie in everything else, every store picks the
same one, whichever arrives first.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from typing import Any, Final

from msgspec import Struct

from onceward.errors import InvalidKey, MissingKey

CONTENT_BYTES: Final = 16
"""Bytes of the content hash at the end of every order."""

MAX_MESSAGE_ID: Final = 1024  # bytes
_MAX_SEQUENCE: Final = 100  # bytes

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_OFFSET: Final = 1 << 63  # makes every time of the calendar positive
_DAY: Final = 86_400  # seconds
_SECOND: Final = 1_000_000  # µs
_ZERO: Final = 0x80  # first byte of sequence 0; positive numbers are above it by length, negative ones below
_MISSING: Final = b"\0"
_NO_TAIL: Final = 2 * _MISSING
_END: Final = b"\0\0"

_datetime = dt.datetime
_UTC: Final = dt.UTC
_pack_time = struct.Struct(">BQH").pack
_unpack_time = struct.Struct(">BQH").unpack_from
_TIME_BYTES: Final = 11
_pack_time_and_sequence = struct.Struct(">BQHQ").pack
_SMALL: Final = 56  # bits
_SMALL_BY_BITS: Final = tuple(
    ((_ZERO + size) << _SMALL, _SMALL - 8 * size, _TIME_BYTES + 1 + size)
    for size in ((bits + 7) >> 3 for bits in range(_SMALL + 1))
)
"""By bit length of a sequence that follows a time: its first byte (shifted), its shift in eight bytes, its end."""
_with_nanoseconds = re.compile(r"(.*[.,]\d{6})(\d{1,3})((?:Z|[+-]\d.*)?)", re.IGNORECASE)
_too_precise = re.compile(r"[.,]\d{10}")

Time = dt.datetime | str
Instant = tuple[int, int]
"""µs since 1970, and the remaining nanoseconds."""


class Ordering(Struct, frozen=True):
    """The position of an event among those of its entity. Times are aware datetimes, or text as in RFC 3339.

    `event_time` is when it happened, `sequence` the producer's own number, `publish_time` the broker's time and
    `message_id` the transport's id, which identifies a redelivery of the same message.
    """

    event_time: Time | None = None
    sequence: int | None = None
    publish_time: Time | None = None
    message_id: str | None = None


AnyOrdering = Ordering | tuple[Any, ...] | Time
"""An ordering, its parts as a tuple, or the event time alone."""


class EventPosition(Struct, frozen=True, gc=False):
    """An ordering, parsed and encoded: the bytes before the content hash of an order, in two halves.

    `time` is the event time, else the publish time, in µs since 1970.
    """

    head: bytes
    """Event time and sequence: set by the producer, and therefore part of the content."""

    tail: bytes
    """Publish time and message id: added by the transport."""

    time: int | None
    message_id: str | None

    def order(self, content: bytes) -> bytes:
        """Return the bytes that stores compare."""
        return self.head + self.tail + content


def position_of(given: AnyOrdering) -> EventPosition:
    """Encode an ordering. At least one part must be present, to say which event is newer."""
    one = given if type(given) is Ordering else _ordering(given)
    time, sequence, published, message = one.event_time, one.sequence, one.publish_time, one.message_id
    if type(time) is _datetime and time.tzinfo is _UTC and published is None:  # the common case, inlined for speed
        since = time - _EPOCH
        at = (since.days * _DAY + since.seconds) * _SECOND + since.microseconds
        if type(sequence) is int and sequence >> _SMALL == 0:
            first, shift, end = _SMALL_BY_BITS[sequence.bit_length()]
            head = _pack_time_and_sequence(1, at + _OFFSET, 0, first + (sequence << shift))[:end]
        else:
            head = _pack_time(1, at + _OFFSET, 0) + (_MISSING if sequence is None else _integer(sequence))
        if message is None:
            return EventPosition(head, _NO_TAIL, at, None)
        _check_message(message)
        return EventPosition(head, _MISSING + _text(message), at, message)
    if time is None and sequence is None and published is None and message is None:
        raise MissingKey("the ordering is empty, so events cannot be compared", hint="pass at least an event time")
    if message is not None:
        _check_message(message)
    return encode_position(
        None if time is None else instant(time, "event time"),
        sequence,
        None if published is None else instant(published, "publish time"),
        message,
    )


def encode_position(
    event_time: Instant | None, sequence: int | None, publish_time: Instant | None, message_id: str | None
) -> EventPosition:
    """Encode the parsed parts."""
    head = _MISSING if event_time is None else _pack_time(1, event_time[0] + _OFFSET, event_time[1])
    head += _MISSING if sequence is None else _integer(sequence)
    tail = _MISSING if publish_time is None else _pack_time(1, publish_time[0] + _OFFSET, publish_time[1])
    tail += _MISSING if message_id is None else _text(message_id)
    happened = publish_time if event_time is None else event_time
    return EventPosition(head, tail, None if happened is None else happened[0], message_id)


def content_of(order: bytes) -> bytes:
    return order[-CONTENT_BYTES:]


def decode_ordering(order: bytes) -> Ordering:
    """Decode an order. Times are returned in UTC, without nanoseconds."""
    at = 0
    time, at = _time_at(order, at)
    sequence, at = _integer_at(order, at)
    published, at = _time_at(order, at)
    message = None if order[at] == 0 else order[at + 1 : -CONTENT_BYTES - 2].replace(b"\0\1", b"\0").decode()
    return Ordering(time, sequence, published, message)


def instant(given: Time, what: str) -> Instant:
    """Return the instant of a time in any time zone."""
    if isinstance(given, str):
        return _parsed(given, what)
    if not isinstance(given, dt.datetime):
        raise InvalidKey(
            f"the {what} is {type(given).__name__}, neither a datetime nor text",
            hint="numbers are ambiguous (seconds or milliseconds): pass datetime.fromtimestamp(seconds, UTC)",
        )
    return _since_epoch(given, what), getattr(given, "nanosecond", 0)


def _parsed(text: str, what: str) -> Instant:
    nanoseconds = 0
    plain = text
    if len(text) > 26:  # noqa: PLR2004 (the length with microseconds: only longer text can be more precise)
        found = None if _too_precise.search(text) else _with_nanoseconds.fullmatch(text)
        if found is not None:
            plain, nanoseconds = found[1] + found[3], int(found[2].ljust(3, "0"))
        elif _too_precise.search(text):
            raise InvalidKey(f"the {what} {text[:60]!r} is more precise than nanoseconds", hint="shorten its fraction")
    try:
        value = dt.datetime.fromisoformat(plain.upper())
    except ValueError:
        raise InvalidKey(
            f"the {what} {text[:60]!r} is not a time", hint='write it as in "2026-03-01T08:05:00.25Z"'
        ) from None
    return _since_epoch(value, what), nanoseconds


def _since_epoch(value: dt.datetime, what: str) -> int:
    if value.utcoffset() is None:
        raise InvalidKey(
            f"the {what} {str(value)[:60]!r} has no time zone, so it is ambiguous",
            hint="use an aware datetime, such as datetime.now(UTC), or text that ends in Z",
        )
    since = dt.datetime.__sub__(value, _EPOCH)  # a subclass may override subtraction
    return (since.days * _DAY + since.seconds) * _SECOND + since.microseconds


def _ordering(given: Any) -> Ordering:
    if isinstance(given, Ordering):
        return given
    if isinstance(given, str | dt.datetime):
        return Ordering(given)
    if isinstance(given, tuple) and len(given) <= len(Ordering.__struct_fields__):
        return Ordering(*given)
    raise InvalidKey(
        f"an ordering cannot be {type(given).__name__}",
        hint="pass Ordering(event_time, sequence, publish_time, message_id), these as a tuple, or the event time",
    )


def _check_message(message: Any) -> None:
    if type(message) is str and 0 < len(message) <= MAX_MESSAGE_ID and message.isascii():
        return
    if not isinstance(message, str):
        raise InvalidKey(f"the message id is {type(message).__name__}, not str", hint="pass str(message_id)")
    if not message:
        raise MissingKey("the message id is empty", hint="pass None if the transport has no message ids")
    try:
        size = len(message) if message.isascii() else len(message.encode())
    except UnicodeEncodeError:
        raise InvalidKey("the message id contains a lone surrogate, which cannot be encoded") from None
    if size > MAX_MESSAGE_ID:
        raise InvalidKey(f"the message id has {size} bytes; the limit is {MAX_MESSAGE_ID}", hint="hash it")


# ── encoding ──


def _time_at(order: bytes, at: int) -> tuple[dt.datetime | None, int]:
    if order[at] == 0:
        return None, at + 1
    since = dt.timedelta(microseconds=_unpack_time(order, at)[1] - _OFFSET)
    return _EPOCH + since, at + _TIME_BYTES


def _integer(value: int) -> bytes:
    """Encode sign and length in one byte, then the number; if negative, its distance from the lowest of its length."""
    if type(value) is not int or (bits := value.bit_length()) > 8 * _MAX_SEQUENCE:
        raise InvalidKey(
            f"the sequence of an event is an int of up to {8 * _MAX_SEQUENCE} bits, not {type(value).__name__}",
            hint="pass the producer's own number, or omit it",
        )
    size = (bits + 7) >> 3
    if value >= 0:
        return ((_ZERO + size << 8 * size) + value).to_bytes(size + 1, "big")
    return ((_ZERO - size + 1 << 8 * size) + value - 1).to_bytes(size + 1, "big")


def _integer_at(order: bytes, at: int) -> tuple[int | None, int]:
    first = order[at]
    if first == 0:
        return None, at + 1
    size = abs(first - _ZERO)
    value = int.from_bytes(order[at + 1 : at + 1 + size], "big")
    return value if first >= _ZERO else value - (1 << 8 * size) + 1, at + 1 + size


def _text(value: str) -> bytes:
    return b"\1" + value.encode().replace(b"\0", b"\0\1") + _END
