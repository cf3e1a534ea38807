"""List entities, and look up processed messages and events, for operators.

Entities have no index, to keep writes cheap. So a listing scans all keys of the database.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from onceward.protocol.latest import DedupMark, EntityState

from .calls import MAX_BATCH
from .latest import RedisLatest
from .maintenance import SIZE
from .records import TIME
from .resp import RedisError, command

CONTENT = slice(2 * TIME.size, 2 * TIME.size + 16)
_special = re.compile(rb"[\\*?\[\]^]")


class RedisLatestListing(RedisLatest):
    """The listings of the latest states of `RedisStore`."""

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        """Return a page of entities and the next cursor.

        The cursor is the server's SCAN cursor and how many of its keys were returned, because SCAN may return more than
        `limit`. Entities that are written during the listing may be listed twice.
        """
        deadline = time.monotonic() + timeout
        at, skip = (cursor or b"0 0").split()
        following, keys = await self._scan_keys(at, limit, timeout)
        ids = sorted({key[len(self._state) :] for key in keys})
        begin = int(skip)
        found = await self.read_latest(ids[begin : begin + limit], timeout=deadline - time.monotonic())
        present = [one for one in found if one is not None and one.value is not None and one.scope == scope]
        if begin + limit < len(ids):
            return present, b"%b %d" % (at, begin + limit)
        return present, None if following == b"0" else following + b" 0"

    async def _scan_keys(self, at: bytes, count: int, timeout: float) -> tuple[bytes, list[bytes]]:
        pattern = _special.sub(rb"\\\g<0>", self._state) + b"*"
        payload = command((b"SCAN", at, b"MATCH", pattern, b"COUNT", b"%d" % count))
        reply: Any = await self._open_transport(timeout).call(payload, timeout, retryable=True)
        if isinstance(reply, RedisError):
            raise self._store_error(reply)
        following, keys = reply
        return following, keys

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        deadline = time.monotonic() + timeout
        found: list[DedupMark | None] = []
        for start in range(0, len(ids), MAX_BATCH):
            some = ids[start : start + MAX_BATCH]
            keys = (self._ids, *[self._mark + id for id in some])
            data = await self.run("read", keys, (self._time(),), deadline - time.monotonic())
            found += _decode_marks(some, data)
        return found


def _decode_marks(ids: Sequence[bytes], data: bytes) -> list[DedupMark | None]:
    [now] = TIME.unpack_from(data)
    at, found = TIME.size, list[DedupMark | None]()
    for id in ids:
        [size] = SIZE.unpack_from(data, at)
        at += SIZE.size
        one = _decode_mark(id, data[at : at + size]) if size else None
        found.append(one if one is not None and now < one.expires_at else None)
        at += size
    return found


def _decode_mark(id: bytes, data: bytes) -> DedupMark:
    [created_at], [expires_at] = TIME.unpack_from(data), TIME.unpack_from(data, TIME.size)
    return DedupMark(id, data[CONTENT], data[CONTENT.stop :].decode("utf-8", "replace"), created_at, expires_at)
