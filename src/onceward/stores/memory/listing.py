"""List the records of the memory store for people."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.protocol.listing import UNFINISHED, ListingFilter, ListingPage
from onceward.protocol.ports import Clock
from onceward.protocol.record import Record, RecordState
from onceward.stores.mutex import Mutex

from .records import MemoryRecords

_decode = msgspec.msgpack.Decoder(tuple[int, bytes]).decode
_encode = msgspec.msgpack.Encoder().encode


class MemoryListing(MemoryRecords):
    """The listings of `MemoryStore`. They visit all records, which are in memory."""

    _clock: Clock
    _mutex: Mutex

    @property
    def listing(self) -> MemoryListing:
        return self

    async def newest(self, wanted: ListingFilter, *, cursor: bytes | None, limit: int, timeout: float) -> ListingPage:
        try:
            after = None if cursor is None else _decode(cursor)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError("this is not a cursor of this store", hint="start with the first page") from error
        chosen = self._chosen(lambda one: wanted.matches(one) and (after is None or _newest(one) > after), limit + 1)
        more = len(chosen) > limit
        return ListingPage(chosen[:limit], _encode(_newest(chosen[limit - 1])) if more else None, self._clock.now())

    async def oldest_pending(self, wanted: ListingFilter, *, limit: int, timeout: float) -> ListingPage:
        pending = [one for one in self._list_all() if one.state is RecordState.PENDING]
        chosen = sorted((one for one in pending if wanted.matches_scope(one.scope)), key=lambda one: one.token)
        return ListingPage([replace(one, result=None) for one in chosen[:limit]], None, self._clock.now())

    async def count_unfinished(self, limit: int, *, timeout: float) -> dict[RecordState, int]:
        counts = Counter(one.state for one in self._list_all())
        return {state: min(counts[state], limit) for state in UNFINISHED}

    def _list_all(self) -> tuple[Record, ...]:
        return self._mutex.run(self._copied)

    def _copied(self) -> tuple[Record, ...]:
        return tuple(self._records.values())

    def _chosen(self, matches: Callable[[Record], bool], limit: int) -> list[Record]:
        found = heapq.nsmallest(limit, filter(matches, self._list_all()), key=_newest)
        return [replace(one, result=None) for one in found]


def _newest(record: Record) -> tuple[int, bytes]:
    return -record.token, record.id
