"""Which entities there are, and what is known of a message or an event: for people.

There is no index of entities, so that nobody pays for one: the server walks over all keys of its database.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from onceward.protocol.latest import DedupMark, EntityState

from .calls import BATCH
from .latest import RedisLatest
from .maintenance import SIZE
from .records import TIME
from .resp import RedisError, command

CONTENT = slice(2 * TIME.size, 2 * TIME.size + 16)
_special = re.compile(rb"[\\*?\[\]^]")


class RedisLatestListing(RedisLatest):
    """Part of `RedisStore`."""

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        """A cursor is the server's own, and how many of its keys were told: it may find more at once than are wanted.

        What is written meanwhile may be told twice.
        """
        deadline = time.monotonic() + timeout
        at, told = (cursor or b"0 0").split()
        following, keys = await self._scanned(at, limit, timeout)
        ids = sorted({key[len(self._state) :] for key in keys})
        begin = int(told)
        found = await self.latest(ids[begin : begin + limit], timeout=deadline - time.monotonic())
        there = [one for one in found if one is not None and one.value is not None and one.scope == scope]
        if begin + limit < len(ids):
            return there, b"%b %d" % (at, begin + limit)
        return there, None if following == b"0" else following + b" 0"

    async def _scanned(self, at: bytes, count: int, seconds: float) -> tuple[bytes, list[bytes]]:
        pattern = _special.sub(rb"\\\g<0>", self._state) + b"*"
        asked = command((b"SCAN", at, b"MATCH", pattern, b"COUNT", b"%d" % count))
        reply: Any = await self._open_wire(seconds).call(asked, seconds, again=True)
        if isinstance(reply, RedisError):
            raise self._refused(reply)
        following, keys = reply
        return following, keys

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        deadline = time.monotonic() + timeout
        found: list[DedupMark | None] = []
        for start in range(0, len(ids), BATCH):
            some = ids[start : start + BATCH]
            keys = (self._ids, *[self._mark + id for id in some])
            data = await self.run("look", keys, (self._time(),), deadline - time.monotonic())
            found += _marks(some, data)
        return found


def _marks(ids: Sequence[bytes], data: bytes) -> list[DedupMark | None]:
    [now] = TIME.unpack_from(data)
    at, found = TIME.size, list[DedupMark | None]()
    for id in ids:
        [size] = SIZE.unpack_from(data, at)
        at += SIZE.size
        one = _mark(id, data[at : at + size]) if size else None
        found.append(one if one is not None and now < one.expires_at else None)
        at += size
    return found


def _mark(id: bytes, data: bytes) -> DedupMark:
    [created_at], [expires_at] = TIME.unpack_from(data), TIME.unpack_from(data, TIME.size)
    return DedupMark(id, data[CONTENT], data[CONTENT.stop :].decode("utf-8", "replace"), created_at, expires_at)
