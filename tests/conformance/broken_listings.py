"""Stores whose listings are broken on purpose."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.protocol.listing import ListingFilter, ListingPage
from onceward.protocol.record import Record, RecordState
from onceward.stores.memory.store import MemoryStore


class ListsOldestFirst(MemoryStore):
    """Returns the pages in the wrong order."""

    async def newest(self, wanted: ListingFilter, *, cursor: bytes | None, limit: int, timeout: float) -> ListingPage:
        page = await super().newest(wanted, cursor=cursor, limit=limit, timeout=timeout)
        return ListingPage(page.records[::-1], page.cursor, page.now)


class ListsResults(MemoryStore):
    """Returns records with their results."""

    async def newest(self, wanted: ListingFilter, **how: Any) -> ListingPage:
        page = await super().newest(wanted, **how)
        return ListingPage([replace(one, result=self._records[one.id].result) for one in page.records],
                           page.cursor, page.now)  # fmt: skip


class ListsByCreation(MemoryStore):
    """Ignores that a record was claimed again."""

    async def newest(self, wanted: ListingFilter, *, cursor: bytes | None, limit: int, timeout: float) -> ListingPage:
        found = sorted(filter(wanted.matches, self._records.values()), key=lambda one: (-one.created_at, one.id))
        return page_by_offset(found, cursor, limit, self._clock.now())


class FiltersWithoutNotes(MemoryStore):
    """Ignores the filter by note."""

    async def newest(self, wanted: ListingFilter, **how: Any) -> ListingPage:
        return await super().newest(replace(wanted, note=""), **how)


class FiltersAnyCase(MemoryStore):
    """Compares tenants without regard to case."""

    async def newest(self, wanted: ListingFilter, **how: Any) -> ListingPage:
        return await super().newest(replace(wanted, tenants=tuple(one.lower() for one in wanted.tenants)), **how)


class ListsByOffset(MemoryStore):
    """Skips the number of records that earlier pages had."""

    async def newest(self, wanted: ListingFilter, *, cursor: bytes | None, limit: int, timeout: float) -> ListingPage:
        found = sorted(filter(wanted.matches, self._records.values()), key=lambda one: (-one.token, one.id))
        return page_by_offset(found, cursor, limit, self._clock.now())


class ListsTheLatestClaims(MemoryStore):
    """Returns the latest claims as the oldest."""

    async def oldest_pending(self, wanted: ListingFilter, *, limit: int, timeout: float) -> ListingPage:
        return await super().newest(
            replace(wanted, states=(RecordState.PENDING,)), cursor=None, limit=limit, timeout=timeout
        )


class CountsPastTheLimit(MemoryStore):
    """Counts all records."""

    async def count_unfinished(self, limit: int, *, timeout: float) -> dict[RecordState, int]:
        return await super().count_unfinished(10**9, timeout=timeout)


class BeginsAnewWithoutACursor(MemoryStore):
    """Returns the first page for what is not a cursor."""

    async def newest(self, wanted: ListingFilter, *, cursor: bytes | None, limit: int, timeout: float) -> ListingPage:
        try:
            return await super().newest(wanted, cursor=cursor, limit=limit, timeout=timeout)
        except ConfigurationError:
            return await super().newest(wanted, cursor=None, limit=limit, timeout=timeout)


def page_by_offset(found: list[Record], cursor: bytes | None, limit: int, now: int) -> ListingPage:
    start = int(cursor or b"0")
    rest = [replace(one, result=None) for one in found[start:]]
    return ListingPage(rest[:limit], b"%d" % (start + limit) if len(rest) > limit else None, now)
