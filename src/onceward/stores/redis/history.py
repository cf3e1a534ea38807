"""The history of keys: one hash per record, deleted or expired with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import msgspec

from onceward.errors import RecordBroken
from onceward.protocol.capabilities import History
from onceward.protocol.history import SUMMED, HistoryEvent, order_of

from .calls import MAX_BATCH, RedisCalls
from .records import EDITED, INVALID, MAX_INT64, encode_text

HEAD: Final = Struct("<3Q")  # at, last_at, count: what `lua/append_history.lua` reads

_encode = msgspec.msgpack.Encoder().encode


class EventDetails(msgspec.Struct, array_like=True, gc=False):
    """The rest of a stored event, which only clients read. Later versions may append fields."""

    attempt: int
    owner: str
    error_type: str
    error: str
    retry_at: int
    detail: str


_decode = msgspec.msgpack.Decoder(EventDetails).decode


class RedisHistory(RedisCalls):
    """The history of `RedisStore`."""

    @property
    def history(self) -> History:
        return self

    async def append_history(self, events: Sequence[HistoryEvent], *, timeout: float) -> int:
        deadline, now = time.monotonic() + timeout, 0
        for start in range(0, max(len(events), 1), MAX_BATCH):  # without events, one call that returns the time
            arguments: list[bytes] = []
            keys = [self._audit]
            for id, mine in _by_id(events[start : start + MAX_BATCH]):
                keys += (self._record + id, self._history + id)
                arguments.append(b"%d" % len(mine))
                for event in mine:
                    arguments += encode_event(event)
            now = await self.run("append_history", keys, arguments, deadline - time.monotonic())
        return now

    async def read_history(self, id: bytes, *, limit: int, timeout: float) -> list[HistoryEvent]:
        keys = (self._audit, self._record + id, self._history + id)
        rows: list[bytes] = await self.run("read_history", keys, (), timeout)
        events = [decode_event(id, field, data) for field, data in zip(rows[::2], rows[1::2], strict=True)]
        return sorted(events, key=order_of)[-limit:]


def _by_id(events: Sequence[HistoryEvent]) -> Iterator[tuple[bytes, list[HistoryEvent]]]:
    grouped: dict[bytes, list[HistoryEvent]] = {}
    for event in events:
        grouped.setdefault(event.id, []).append(event)
    yield from grouped.items()


def encode_event(event: HistoryEvent) -> tuple[bytes, bytes, bytes]:
    """Return the field, its bytes, and whether equal events are summed."""
    head = HEAD.pack(*(min(max(number, 0), MAX_INT64) for number in (event.at, event.last, event.count)))
    owner, error_type, error, detail = (
        encode_text(text).decode() for text in (event.owner, event.error_type, event.error, event.detail)
    )
    details = EventDetails(event.attempt, owner, error_type, error, event.retry_at, detail)
    return b"%d %b" % (event.token, event.name.encode()), head + _encode(details), b"%d" % (event.name in SUMMED)


def decode_event(id: bytes, field: bytes, data: bytes) -> HistoryEvent:
    """Decode an event as it is stored in a field of the hash."""
    token, _, name = field.partition(b" ")
    try:
        at, last_at, count = HEAD.unpack_from(data)
        rest = _decode(data[HEAD.size :])
        return HistoryEvent(
            id, int(token), name.decode(), at, last_at, count,
            rest.attempt, rest.owner, rest.error_type, rest.error, rest.retry_at, rest.detail,
        )  # fmt: skip
    except INVALID as broken:
        raise RecordBroken("the history of this key has invalid content", key=id.hex(), hint=EDITED) from broken
