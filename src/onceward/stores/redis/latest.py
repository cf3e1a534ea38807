"""The latest state of entities: send deliveries to the server in one call, where lua/latest.lua applies them.

The server expires old entries by itself. Entities have no index, to keep writes cheap. So a listing for operators scans
all keys of the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from struct import Struct, error
from typing import Final, TypeVar

from onceward.errors import ConfigurationError, RecordBroken, VersionSkew
from onceward.protocol.latest import DedupMark, EntityState, EventDelivery, LatestDecision, LatestResult, Retention

from .calls import MAX_BATCH, RedisCalls
from .maintenance import MAX_POSITION_DIGITS, is_scan_position, key_pattern, not_a_cursor
from .records import EDITED, INVALID, NEWEST, TIME, encode_text
from .scripts import encode_command

T = TypeVar("T")

DECISIONS: Final = (
    LatestDecision.APPLIED,
    LatestDecision.DUPLICATE_MESSAGE,
    LatestDecision.DUPLICATE_EVENT,
    LatestDecision.STALE,
    LatestDecision.MISMATCH,
    LatestDecision.PARKED,
    LatestDecision.SKEW,
    LatestDecision.EVENT_MISMATCH,
)
APPLIES: Final = 16
CONFLICT: Final = 32
ERROR: Final = 255
RESULTS: Final = {
    number + applies + conflict: LatestResult(decision, applied=applies > 0, conflict=conflict > 0)
    for number, decision in enumerate(DECISIONS)
    for applies in (0, APPLIES)
    for conflict in (0, CONFLICT)
}

HEAD: Final = Struct("<Q2BH")
REST: Final = Struct("<B2H2I")
STATE: Final = Struct("<B2QB2H2I")
MARK_CONTENT: Final = slice(2 * TIME.size, 2 * TIME.size + 16)


class RedisLatest(RedisCalls):
    """The latest states of `RedisStore`."""

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """Apply in calls of about 256, so that others are served in between. An entity is never split over two."""
        deadline = time.monotonic() + timeout
        kept = [TIME.pack(keep.marks), TIME.pack(keep.deleted)]
        if len(deliveries) <= MAX_BATCH:
            return await self._apply_batch(deliveries, kept, timeout) if deliveries else []
        answers: dict[int, LatestResult] = {}
        for places in _chunks(deliveries):
            some = [deliveries[place] for place in places]
            ruled = await self._apply_batch(some, kept, deadline - time.monotonic())
            answers.update(zip(places, ruled, strict=True))
        return [answers[place] for place in range(len(deliveries))]

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        return await self._read_each(self._state, ids, decode_state, timeout)

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        return await self._read_each(self._mark, ids, decode_mark, timeout)

    async def _read_each(
        self, prefix: bytes, ids: Sequence[bytes], decode: Callable[[bytes, bytes | None, int], T], timeout: float
    ) -> list[T]:
        deadline = time.monotonic() + timeout
        found: list[T] = []
        for start in range(0, len(ids), MAX_BATCH):
            some = ids[start : start + MAX_BATCH]
            keys = (self._audit, *[prefix + id for id in some])
            now, *values = await self.run("read", keys, (), deadline - time.monotonic())
            found += [decode(id, data, now) for id, data in zip(some, values, strict=True)]
        return found

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        """Return a page of entities and the next cursor.

        The cursor is the server's SCAN cursor and how many of its keys were returned, because SCAN may return more than
        `limit`. Entities that are written during the listing may be listed twice.
        """
        deadline = time.monotonic() + timeout
        at, begin = _position_of(cursor or b"0 0")
        following, keys = await self._scan_keys(at, limit, timeout)
        ids = sorted({key[len(self._state) :] for key in keys})
        found = await self.read_latest(ids[begin : begin + limit], timeout=deadline - time.monotonic())
        present = [one for one in found if one is not None and one.value is not None and one.scope == scope]
        if begin + limit < len(ids):
            return present, b"%b %d" % (at, begin + limit)
        return present, None if following == b"0" else following + b" 0"

    async def _scan_keys(self, at: bytes, count: int, timeout: float) -> tuple[bytes, list[bytes]]:
        parts = (b"SCAN", at, b"MATCH", key_pattern(self._state), b"COUNT", b"%d" % count)
        following, keys = await self._command(encode_command(*parts), timeout)
        return following, keys

    async def expire_latest(self, limit: int, *, timeout: float) -> int:  # noqa: ARG002 (the server does it)
        return 0

    async def _apply_batch(
        self, deliveries: Sequence[EventDelivery], kept: list[bytes], timeout: float
    ) -> list[LatestResult]:
        keys: list[bytes] = []
        for one in deliveries:
            entity = self._state + one.id
            keys += (
                entity,
                self._mark + one.message if one.message else entity,
                self._mark + one.event if one.event else entity,
            )
        try:
            encoded = [_encode_delivery(one) for one in deliveries]
        except error as wrong:
            raise ConfigurationError(f"a delivery holds a text that is too long ({wrong})") from wrong
        data: bytes = await self.run("latest", keys, (*kept, *encoded), timeout)
        count = len(deliveries)
        if len(data) > count:
            raise await self._store_error(data[count:].decode("utf-8", "replace"))
        return [RESULTS[answer] for answer in data]


def _position_of(cursor: bytes) -> tuple[bytes, int]:
    at, separator, skip = cursor.partition(b" ")
    if not (separator and is_scan_position(at) and skip.isdigit() and len(skip) <= MAX_POSITION_DIGITS):
        raise not_a_cursor()
    return at, int(skip)


def _chunks(deliveries: Sequence[EventDelivery]) -> Iterator[list[int]]:
    """Yield the positions in chunks of about 256, in order, with all positions of an entity together."""
    places: dict[bytes, list[int]] = {}
    for place, one in enumerate(deliveries):
        places.setdefault(one.id, []).append(place)
    chunk: list[int] = []
    for of_one in places.values():
        if chunk and len(chunk) + len(of_one) > MAX_BATCH:
            yield chunk
            chunk = []
        chunk = chunk + of_one
    if chunk:
        yield chunk


def _encode_delivery(one: EventDelivery) -> bytes:
    trace, scope, entity, value = encode_text(one.trace), encode_text(one.scope), encode_text(one.entity), one.value
    head = HEAD.pack(max(one.not_before, 0), one.message != b"", one.event != b"", len(trace))
    rest = REST.pack(value is not None, len(one.order), 0, len(scope), len(entity))
    return b"".join((head, trace, rest, one.order, scope, entity, value or b""))


def decode_state(id: bytes, data: bytes | None, now: int) -> EntityState | None:
    """Decode a state. None: there is none, or it has expired."""
    if data is None:
        return None
    if data[:1] > NEWEST:
        raise VersionSkew(
            "the entity was written by a newer Onceward and is left unchanged",
            key=id.hex(),
            hint="upgrade this process",
        )
    try:
        _, updated_at, expires_at, is_there, order, more, scope, entity = STATE.unpack_from(data)
        a = STATE.size + order
        b = a + more
        c = b + scope
        d = c + entity
        if expires_at and expires_at <= now:
            return None
        return EntityState(
            id, data[b:c].decode(), data[c:d].decode(), data[STATE.size : a], data[d:] if is_there else None,
            updated_at, expires_at or None,
        )  # fmt: skip
    except INVALID as broken:
        raise RecordBroken("the state of this entity has invalid content", key=id.hex(), hint=EDITED) from broken


def decode_mark(id: bytes, data: bytes | None, now: int) -> DedupMark | None:
    """Decode a mark. None: there is none, or it has expired."""
    if data is None:
        return None
    try:
        [created_at], [expires_at] = TIME.unpack_from(data), TIME.unpack_from(data, TIME.size)
    except INVALID as broken:
        raise RecordBroken("this mark has invalid content", key=id.hex(), hint=EDITED) from broken
    if expires_at <= now:
        return None
    return DedupMark(
        id, data[MARK_CONTENT], data[MARK_CONTENT.stop :].decode("utf-8", "replace"), created_at, expires_at
    )
