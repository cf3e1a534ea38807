"""What processes have counted: a hash an hour, from processes to their sheets, which expires by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from struct import Struct
from typing import Final

from onceward.protocol.counters import (
    COUNTS_RETENTION,
    HOUR,
    CounterRow,
    StoredCounts,
    decode_counts,
    encode_counts,
    oldest_kept_hour,
)

from .calls import RedisCalls
from .records import TIME

HOURS: Final = 64
"""Hours in one call: the server does nothing else meanwhile."""

HEAD: Final = Struct("<H2I")
SECONDS: Final = (COUNTS_RETENTION + 2 * HOUR) // 1_000_000
"""How long after its last sheet an hour stays: a little longer than it is shown."""


class RedisCounters(RedisCalls):
    """Part of `RedisStore`."""

    async def save_counts(self, sheets: Sequence[CounterRow], *, timeout: float) -> int:
        keys = (self._ids, *[self._of_hour(one.hour) for one in sheets])
        arguments = [self._time(), b"%d" % SECONDS]
        for one in sheets:
            arguments += (one.process, TIME.pack(one.number) + encode_counts(one.counts))
        data: bytes = await self.run("count", keys, arguments, timeout)
        return int(TIME.unpack_from(data)[0])

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        deadline = time.monotonic() + timeout
        now = await self.save_counts([], timeout=timeout)
        hours = range(
            max(since, oldest_kept_hour(now)), now // HOUR + 2
        )  # one beyond: the clock may have been set back
        sheets: list[CounterRow] = []
        for start in range(0, len(hours), HOURS):
            some = hours[start : start + HOURS]
            keys = (self._ids, *map(self._of_hour, some))
            sheets += _sheets(some, await self.run("counted", keys, (self._time(),), deadline - time.monotonic()))
        return StoredCounts(sheets, now)

    async def expire_counts(self, limit: int, *, timeout: float) -> int:  # noqa: ARG002 (the server does it)
        return 0

    def _of_hour(self, hour: int) -> bytes:
        return self._hour + b"%d" % hour


def _sheets(hours: Sequence[int], data: bytes) -> list[CounterRow]:
    at, found = TIME.size, []
    while at < len(data):
        place, named, size = HEAD.unpack_from(data, at)
        at += HEAD.size
        process, sheet = data[at : at + named], data[at + named : at + named + size]
        found.append(CounterRow(process, hours[place], TIME.unpack_from(sheet)[0], decode_counts(sheet[TIME.size :])))
        at += named + size
    return found
