"""List entities, and look up processed messages and events, for operators.

Entities have no index, to keep writes cheap. So a listing scans all keys of the database.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from onceward.protocol.latest import DedupMark, EntityState

from .calls import MAX_BATCH
from .latest import RedisLatest
from .maintenance import key_pattern
from .records import TIME
from .scripts import encode_command

CONTENT = slice(2 * TIME.size, 2 * TIME.size + 16)


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
        parts = (b"SCAN", at, b"MATCH", key_pattern(self._state), b"COUNT", b"%d" % count)
        following, keys = await self._command(encode_command(*parts), timeout)
        return following, keys

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        deadline = time.monotonic() + timeout
        found: list[DedupMark | None] = []
        for start in range(0, len(ids), MAX_BATCH):
            some = ids[start : start + MAX_BATCH]
            keys = (self._audit, *[self._mark + id for id in some])
            now, *marks = await self.run("read", keys, (), deadline - time.monotonic())
            found += [_decode_mark(id, data, now) for id, data in zip(some, marks, strict=True)]
        return found


def _decode_mark(id: bytes, data: bytes | None, now: int) -> DedupMark | None:
    """Decode a mark. None: there is none, or it has expired."""
    if data is None:
        return None
    [created_at], [expires_at] = TIME.unpack_from(data), TIME.unpack_from(data, TIME.size)
    if expires_at <= now:
        return None
    return DedupMark(id, data[CONTENT], data[CONTENT.stop :].decode("utf-8", "replace"), created_at, expires_at)
