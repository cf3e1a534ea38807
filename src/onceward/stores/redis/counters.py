"""Counters: one hash per hour, from processes to rows, which expires by itself."""

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

HOURS_PER_CALL: Final = 64
"""The server does nothing else during a call."""

HEAD: Final = Struct("<H2I")
HOUR_TTL: Final = (COUNTS_RETENTION + 2 * HOUR) // 1_000_000
"""Seconds that an hour is kept after its last row: a little longer than it is shown."""


class RedisCounters(RedisCalls):
    """The counters of `RedisStore`."""

    async def save_counts(self, counter_rows: Sequence[CounterRow], *, timeout: float) -> int:
        keys = (self._audit, *[self._hour_key(one.hour) for one in counter_rows])
        arguments = [b"%d" % HOUR_TTL]
        for one in counter_rows:
            arguments += (one.process, TIME.pack(one.number) + encode_counts(one.counts))
        data: bytes = await self.run("save_counts", keys, arguments, timeout)
        return int(TIME.unpack_from(data)[0])

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        deadline = time.monotonic() + timeout
        now = await self.save_counts([], timeout=timeout)
        hours = range(
            max(since, oldest_kept_hour(now)), now // HOUR + 2
        )  # one more, because the clock may have been set back
        counter_rows: list[CounterRow] = []
        for start in range(0, len(hours), HOURS_PER_CALL):
            some = hours[start : start + HOURS_PER_CALL]
            keys = (self._audit, *map(self._hour_key, some))
            counter_rows += _decode_counter_rows(
                some, await self.run("read_counts", keys, (), deadline - time.monotonic())
            )
        return StoredCounts(counter_rows, now)

    async def expire_counts(self, limit: int, *, timeout: float) -> int:  # noqa: ARG002 (the server does it)
        return 0

    def _hour_key(self, hour: int) -> bytes:
        return self._hour + b"%d" % hour


def _decode_counter_rows(hours: Sequence[int], data: bytes) -> list[CounterRow]:
    at, found = TIME.size, []
    while at < len(data):
        place, named, size = HEAD.unpack_from(data, at)
        at += HEAD.size
        process, counter_row = data[at : at + named], data[at + named : at + named + size]
        found.append(
            CounterRow(process, hours[place], TIME.unpack_from(counter_row)[0], decode_counts(counter_row[TIME.size :]))
        )
        at += named + size
    return found
