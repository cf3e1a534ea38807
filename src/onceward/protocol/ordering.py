"""Which of two events is the newer: an ordering, and the one key of bytes that every store compares.

The parts count in this order, and a missing part sorts below every other:

| part | how it is encoded | bytes |
|---|---|---|
| event time | the instant in µs since 1970, made positive, then the nanoseconds below | 11 |
| sequence | an integer: sign and length first, then its bytes | 1 to 101 |
| publish time | as the event time | 11 |
| message id | UTF-8, a NUL as `00 01`, ended by `00 00` | its own + 3 |
| content hash | version of the encoder and SHA-256 of the content, cut | 16 |

A missing part is one zero byte. Every part ends by itself, so that two keys compare byte by byte as their tuples do,
and only equal tuples have equal keys. The content hash comes last: events that tie in everything else are decided the
same way on every store, whichever arrives first.
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
_OFFSET: Final = 1 << 63  # makes every instant of the calendar positive
_DAY: Final = 86_400  # seconds
_SECOND: Final = 1_000_000  # µs
_ZERO: Final = 0x80  # the first byte of a sequence of 0; above it the positive ones by length, below it the others
_MISSING: Final = b"\0"
_NO_TAIL: Final = 2 * _MISSING
_END: Final = b"\0\0"

_datetime = dt.datetime
_UTC: Final = dt.UTC
_packed = struct.Struct(">BQH").pack
_unpacked = struct.Struct(">BQH").unpack_from
_TIME_BYTES: Final = 11
_with_small = struct.Struct(">BQHQ").pack
_SMALL: Final = 56  # bits
_SMALL_BY_BITS: Final = tuple(
    ((_ZERO + size) << _SMALL, _SMALL - 8 * size, _TIME_BYTES + 1 + size)
    for size in ((bits + 7) >> 3 for bits in range(_SMALL + 1))
)
"""Of a sequence of so many bits behind a time: its first byte, how far it is shifted in eight bytes, where it ends."""
_finer = re.compile(r"(.*[.,]\d{6})(\d{1,3})((?:Z|[+-]\d.*)?)", re.IGNORECASE)
_finest = re.compile(r"[.,]\d{10}")

Time = dt.datetime | str
Instant = tuple[int, int]
"""µs since 1970, and the nanoseconds below."""


class Ordering(Struct, frozen=True):
    """Where an event stands among those of its entity. Times are aware datetimes, or texts as in RFC 3339.

    `event_time` is when it happened, `sequence` the producer's own number, `publish_time` the broker's time and
    `message_id` the transport's id, by which a second delivery of the same message is known.
    """

    event_time: Time | None = None
    sequence: int | None = None
    publish_time: Time | None = None
    message_id: str | None = None


AnyOrdering = Ordering | tuple[Any, ...] | Time
"""An ordering, its parts as a tuple, or the event time alone."""


class EventPosition(Struct, frozen=True, gc=False):
    """An ordering, understood and encoded: what comes before the content hash in an order, in two halves.

    `time` is when it happened, as far as the ordering says (event time, else publish time), in µs since 1970.
    """

    head: bytes
    """Event time and sequence: what the producer says, and what is therefore part of the content."""

    tail: bytes
    """Publish time and message id: what the transport adds."""

    time: int | None
    message_id: str | None

    def order(self, content: bytes) -> bytes:
        """The key that stores compare."""
        return self.head + self.tail + content


def position_of(given: AnyOrdering) -> EventPosition:
    """The place of an ordering. At least one part must be there: else nothing says which event is newer."""
    one = given if type(given) is Ordering else _ordering(given)
    time, sequence, published, message = one.event_time, one.sequence, one.publish_time, one.message_id
    if type(time) is _datetime and time.tzinfo is _UTC and published is None:  # what most are, spelled out
        since = time - _EPOCH
        at = (since.days * _DAY + since.seconds) * _SECOND + since.microseconds
        if type(sequence) is int and sequence >> _SMALL == 0:
            first, shift, end = _SMALL_BY_BITS[sequence.bit_length()]
            head = _with_small(1, at + _OFFSET, 0, first + (sequence << shift))[:end]
        else:
            head = _packed(1, at + _OFFSET, 0) + (_MISSING if sequence is None else _integer(sequence))
        if message is None:
            return EventPosition(head, _NO_TAIL, at, None)
        _check_message(message)
        return EventPosition(head, _MISSING + _text(message), at, message)
    if time is None and sequence is None and published is None and message is None:
        raise MissingKey(
            "the ordering is empty: nothing says which event is the newer", hint="give at least an event time"
        )
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
    """The bytes of the parts."""
    head = _MISSING if event_time is None else _packed(1, event_time[0] + _OFFSET, event_time[1])
    head += _MISSING if sequence is None else _integer(sequence)
    tail = _MISSING if publish_time is None else _packed(1, publish_time[0] + _OFFSET, publish_time[1])
    tail += _MISSING if message_id is None else _text(message_id)
    happened = publish_time if event_time is None else event_time
    return EventPosition(head, tail, None if happened is None else happened[0], message_id)


def content_of(order: bytes) -> bytes:
    return order[-CONTENT_BYTES:]


def decode_ordering(order: bytes) -> Ordering:
    """What an order was made of. Times come back in UTC, without what is below a microsecond."""
    at = 0
    time, at = _time_at(order, at)
    sequence, at = _integer_at(order, at)
    published, at = _time_at(order, at)
    message = None if order[at] == 0 else order[at + 1 : -CONTENT_BYTES - 2].replace(b"\0\1", b"\0").decode()
    return Ordering(time, sequence, published, message)


def instant(given: Time, what: str) -> Instant:
    """A moment, whatever time zone it is written in."""
    if isinstance(given, str):
        return _parsed(given, what)
    if not isinstance(given, dt.datetime):
        raise InvalidKey(
            f"the {what} is {type(given).__name__}, neither a datetime nor a text",
            hint="numbers may be seconds or milliseconds: datetime.fromtimestamp(seconds, UTC)",
        )
    return _since_epoch(given, what), getattr(given, "nanosecond", 0)


def _parsed(text: str, what: str) -> Instant:
    below = 0
    plain = text
    if len(text) > 26:  # noqa: PLR2004 (the length of a text with microseconds: only longer ones can be finer)
        found = None if _finest.search(text) else _finer.fullmatch(text)
        if found is not None:
            plain, below = found[1] + found[3], int(found[2].ljust(3, "0"))
        elif _finest.search(text):
            raise InvalidKey(f"the {what} {text[:60]!r} is finer than nanoseconds", hint="cut its fraction")
    try:
        value = dt.datetime.fromisoformat(plain.upper())
    except ValueError:
        raise InvalidKey(
            f"the {what} {text[:60]!r} is not a time", hint='write it as in "2026-03-01T08:05:00.25Z"'
        ) from None
    return _since_epoch(value, what), below


def _since_epoch(value: dt.datetime, what: str) -> int:
    if value.utcoffset() is None:
        raise InvalidKey(
            f"the {what} {str(value)[:60]!r} has no time zone, so it names no instant",
            hint="use an aware datetime, such as datetime.now(UTC), or a text that ends in Z",
        )
    since = dt.datetime.__sub__(value, _EPOCH)  # not a subclass's own difference
    return (since.days * _DAY + since.seconds) * _SECOND + since.microseconds


def _ordering(given: Any) -> Ordering:
    if isinstance(given, Ordering):
        return given
    if isinstance(given, str | dt.datetime):
        return Ordering(given)
    if isinstance(given, tuple) and len(given) <= len(Ordering.__struct_fields__):
        return Ordering(*given)
    raise InvalidKey(
        f"{type(given).__name__} is no ordering",
        hint="give Ordering(event_time, sequence, publish_time, message_id), these as a tuple, or the event time",
    )


def _check_message(message: Any) -> None:
    if type(message) is str and 0 < len(message) <= MAX_MESSAGE_ID and message.isascii():
        return
    if not isinstance(message, str):
        raise InvalidKey(f"the message id is {type(message).__name__}, not str", hint="pass str(message_id)")
    if not message:
        raise MissingKey("the message id is empty", hint="None means that the transport gives none")
    try:
        size = len(message) if message.isascii() else len(message.encode())
    except UnicodeEncodeError:
        raise InvalidKey("the message id has a lone surrogate, which is no text") from None
    if size > MAX_MESSAGE_ID:
        raise InvalidKey(f"the message id has {size} bytes; the limit is {MAX_MESSAGE_ID}", hint="hash it")


# ── the bytes ──


def _time_at(order: bytes, at: int) -> tuple[dt.datetime | None, int]:
    if order[at] == 0:
        return None, at + 1
    since = dt.timedelta(microseconds=_unpacked(order, at)[1] - _OFFSET)
    return _EPOCH + since, at + _TIME_BYTES


def _integer(value: int) -> bytes:
    """A byte of sign and length, then the number; negative ones as the distance from the lowest of their length."""
    if type(value) is not int or (bits := value.bit_length()) > 8 * _MAX_SEQUENCE:
        raise InvalidKey(
            f"the sequence of an event is an int of up to {8 * _MAX_SEQUENCE} bits, not {type(value).__name__}",
            hint="give the producer's own number, or leave it out",
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
