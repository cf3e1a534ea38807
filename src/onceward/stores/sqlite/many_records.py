"""The calls of `SQLiteStore` that read or delete many records: scan, first, counts, purge and audit."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Coroutine
from typing import Any

from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature, purge_entry
from onceward.protocol.listing import ListingFilter, ListingPage
from onceward.protocol.ports import Clock, Filter, Page, SortOrder
from onceward.protocol.record import RecordState
from onceward.protocol.runtime import Runtime

from . import audit, listing, maintenance
from .connection import SQLiteConnection

Cursor = sqlite3.Cursor


class SQLiteManyRecords:
    """The listings and the purge of `SQLiteStore`. A read that takes too long is interrupted."""

    inline: bool
    _connection: SQLiteConnection
    _clock: Clock
    _runtime: Runtime | None
    _run_until: Callable[..., Coroutine[Any, Any, Any]]

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        deadline = time.monotonic() + timeout
        page: Page = await self._run_until(deadline, self._scan, wanted, cursor, limit, deadline)
        return page

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        deadline = time.monotonic() + timeout
        page: Page = await self._run_until(deadline, self._first, wanted, order, limit, deadline)
        return page

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        deadline = time.monotonic() + timeout
        found: dict[tuple[str, RecordState], int] = await self._run_until(deadline, self._counts, deadline)
        return found

    async def newest(self, wanted: ListingFilter, *, cursor: bytes | None, limit: int, timeout: float) -> ListingPage:
        return await self._list(timeout, listing.newest, wanted, cursor, limit)

    async def oldest_pending(self, wanted: ListingFilter, *, limit: int, timeout: float) -> ListingPage:
        return await self._list(timeout, listing.oldest_pending, wanted, limit)

    async def _list(self, timeout: float, work: Callable[..., ListingPage], *arguments: Any) -> ListingPage:
        deadline = time.monotonic() + timeout
        page: ListingPage = await self._run_until(deadline, self._listed, deadline, work, *arguments)
        return page

    async def count_unfinished(self, limit: int, *, timeout: float) -> dict[RecordState, int]:
        deadline = time.monotonic() + timeout
        found: dict[RecordState, int] = await self._run_until(deadline, listing.count_unfinished, limit)
        return found

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        """Purge in chunks, each in its own transaction.

        It pauses after each chunk: SQLite has no queue for its write lock, so a purge that took the lock again
        immediately would block all other writers.
        """
        deadline = time.monotonic() + timeout
        total = entry = 0
        while total < limit:
            chunk = min(limit - total, maintenance.CHUNK)
            tried, purged, entry = await self._run_until(deadline, self._purge, chunk, deadline, signed, entry)
            total += purged
            if tried < chunk or not purged:
                break
            if self._runtime is not None and not self.inline:
                await self._runtime.sleep(maintenance.PAUSE)
        await self._run_until(deadline, self._purge_audit)
        return total

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        deadline = time.monotonic() + timeout
        entries: list[AuditEntry] = await self._run_until(deadline, self._audit, wanted, limit, deadline)
        return entries

    # ── blocking, called with the connection's lock held ──

    def _scan(self, cursor: Cursor, wanted: Filter, after: bytes | None, limit: int, deadline: float) -> Page:
        with maintenance.with_deadline(cursor, deadline):
            return maintenance.scan(cursor, wanted, after, limit, self._clock.now())

    def _first(self, cursor: Cursor, wanted: Filter, order: SortOrder, limit: int, deadline: float) -> Page:
        with maintenance.with_deadline(cursor, deadline):
            return maintenance.first(cursor, wanted, order, limit, self._clock.now())

    def _listed(
        self, cursor: Cursor, deadline: float, work: Callable[..., ListingPage], *arguments: Any
    ) -> ListingPage:
        with maintenance.with_deadline(cursor, deadline):
            return work(cursor, *arguments, self._clock.now())

    def _counts(self, cursor: Cursor, deadline: float) -> dict[tuple[str, RecordState], int]:
        with maintenance.with_deadline(cursor, deadline):
            return maintenance.counts(cursor)

    def _purge(
        self, cursor: Cursor, limit: int, deadline: float, signed: AuditSignature | None, entry: int
    ) -> tuple[int, int, int]:
        """Return the number of candidates, of purged records, and the number of the audit entry that counts them."""
        with maintenance.with_deadline(cursor, deadline):
            ids = maintenance.candidates(cursor, self._clock.now(), limit)
        deleted, entry = self._connection.write(cursor, self._delete, ids, signed, entry) if ids else (0, entry)
        return len(ids), deleted, entry

    def _delete(self, cursor: Cursor, ids: list[bytes], signed: AuditSignature | None, entry: int) -> tuple[int, int]:
        now = self._clock.now()
        deleted = maintenance.purge(cursor, ids, now)
        if signed is not None and deleted:
            if entry:
                audit.raise_count(cursor, entry, deleted, now)
            else:
                entry = audit.write(cursor, [purge_entry(signed, deleted, now)])
        return deleted, entry

    def _purge_audit(self, cursor: Cursor) -> None:
        now = self._clock.now()
        if audit.has_old(cursor, now):
            self._connection.write(cursor, audit.purge, now, maintenance.CHUNK)

    def _audit(self, cursor: Cursor, wanted: AuditFilter, limit: int, deadline: float) -> list[AuditEntry]:
        with maintenance.with_deadline(cursor, deadline):
            return audit.find(cursor, wanted, limit, self._clock.now())
