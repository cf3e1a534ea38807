"""SQLiteStore: records in a file that several processes share.

Every verb reads the rows, lets `protocol.transitions` decide and writes the changes. A claim first reads without the
write lock: if nothing has to be written (a replay, another worker is running), the lock is not taken. A request of an
owner uses the record that this process wrote last. A single record is written by one
statement that applies only if the record is unchanged. Everything else is a transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature, purge_entry
from onceward.protocol.capabilities import (
    Capabilities,
    Counters,
    LatestStates,
    Lookup,
    Migrations,
    Notifications,
    Schema,
    Sorting,
    Transactions,
)
from onceward.protocol.ports import Clock, Filter, Page, SortOrder
from onceward.protocol.record import CompletedRecord, Record, RecordState
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, ExpectedRecord, Renewal, Verdict
from onceward.protocol.runtime import Runtime
from onceward.stores.caller_connection import driver_connection, transaction_block
from onceward.stores.clock import WallClock
from onceward.stores.group_commit import GroupCommit
from onceward.stores.watchers import Watchers

from . import audit, maintenance
from . import errors as sqlite_errors
from .cache import RecordCache, StaleCache
from .connection import MEMORY, Cursor, SQLiteConnection, TimeLimit
from .counters import SQLiteCounters
from .erasure import SQLiteErasure
from .joined import SQLiteJoined, check_connection
from .latest import SQLiteLatest
from .rows import SELECT_COMPLETED, completed_row
from .schema import LATEST, examine
from .table import (
    SELECT_RECORDS,
    Found,
    compute_answers,
    forget,
    ids_of,
    insert_if_absent,
    sign,
    update_if_unchanged,
    write,
)
from .url import absolute, checked_synchronous, name_of

T = TypeVar("T")


class SQLiteStore(SQLiteLatest, SQLiteCounters, SQLiteErasure, GroupCommit, Watchers, Capabilities):
    """A SQLite file in WAL mode. With `synchronous="FULL"`, acknowledged writes survive a power cut.

    `":memory:"` is one shared connection for one process. It cannot join transactions.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "FULL",
        clock: Clock | None = None,
        migrate: bool = True,
    ) -> None:
        super().__init__()
        self.inline = os.fspath(path) == MEMORY
        self._path = MEMORY if self.inline else absolute(os.fspath(path))
        self.name = name_of(self._path)
        self._synchronous = checked_synchronous(synchronous)
        self._clock = clock or WallClock()
        self._migrate = migrate
        self._runtime: Runtime | None = None
        self._connection = SQLiteConnection(self._path, self.name, self._synchronous, migrate=migrate)
        self._connection.on_fork = self._waiting.clear
        self._record_cache = RecordCache()

    @property
    def clock(self) -> Clock:
        """The store's clock, for wrappers that answer in place of the store."""
        return self._clock

    def clone(self) -> SQLiteStore:
        return self if self.inline else _with_settings(*self._settings())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the settings: the other process opens its own connection."""
        if self.inline:
            raise ConfigurationError(
                f"{self.name} belongs to one process and cannot be sent to another", hint="use a file"
            )
        return _with_settings, self._settings()

    def _settings(self) -> tuple[str, str, Clock, bool]:
        return self._path, self._synchronous, self._clock, self._migrate

    async def open(self, runtime: Runtime) -> None:
        await runtime.offload(self._connection.open)
        self._runtime = runtime
        if not self.inline:  # calls in memory never wait, so batching would only delay them
            self.open_batcher(runtime)

    async def close(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.offload(self._connection.close)

    # ── capabilities ──

    @property
    def lookup(self) -> Lookup:
        return self.lookup_completed

    @property
    def notifications(self) -> Notifications:
        return self

    @property
    def sorting(self) -> Sorting:
        return self

    @property
    def latest(self) -> LatestStates:
        return self

    @property
    def counters(self) -> Counters:
        return self

    @property
    def migrations(self) -> Migrations:
        return self

    @property
    def transactions(self) -> Transactions | None:
        """None in memory: the connection is private, so no caller can share a transaction with it."""
        return None if self.inline else self

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    def lookup_completed(self, id: bytes, fingerprint: bytes, /) -> CompletedRecord | None:
        row = self._connection.try_fetch(SELECT_COMPLETED, id)
        if not row:
            if row is not None:
                self._record_cache.add_missing(id)
            return None
        done = completed_row(row)
        return done if done is not None and transitions.replays(done, fingerprint, self._clock.now()) else None

    async def send(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        """Apply claims, renewals and settlements in one transaction."""
        answers = await self._run(timeout, self._apply, requests, ids_of(requests))
        if self._waiting:
            self.wake(one.id for one in requests if not isinstance(one, ClaimRequest | Renewal))
        return answers

    async def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> list[Answer]:
        if signed is None:
            return await super().settle(settlements, timeout=timeout)
        ids = ids_of(settlements)
        answers = await self._run(timeout, self._settle_signed, signed, settlements, ids)
        self.wake(ids)
        return answers

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._run(timeout, self._read, ids)

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, ExpectedRecord] | None = None,
        signed: AuditSignature | None = None,
    ) -> list[Answer]:
        answers = await self._run(timeout, self._forget, ids, force, seen or {}, signed)
        self.wake(ids)
        return answers

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await self._run(timeout, self._scan, wanted, cursor, limit, TimeLimit.of(timeout).deadline)

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        return await self._run(timeout, self._first, wanted, order, limit, TimeLimit.of(timeout).deadline)

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await self._run(timeout, self._counts, TimeLimit.of(timeout).deadline)

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        """Purge in chunks, each in a transaction of its own.

        It pauses after each chunk: SQLite has no queue for its write lock, so a purge that took the lock again at once
        would keep all other writers waiting.
        """
        time_limit = TimeLimit.of(timeout)
        total = entry = 0
        while total < limit:
            chunk = min(limit - total, maintenance.CHUNK)
            tried, purged, entry = await self._run_within(
                time_limit, self._purge, chunk, time_limit.deadline, signed, entry
            )
            total += purged
            if tried < chunk or not purged:
                break
            if self._runtime is not None and not self.inline:
                await self._runtime.sleep(maintenance.PAUSE)
        await self._run_within(time_limit, self._purge_audit)
        return total

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await self._run(timeout, self._audit, wanted, limit, TimeLimit.of(timeout).deadline)

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        return await runtime.offload(self._examine, timeout)

    async def migrate(self, runtime: Runtime) -> None:
        """Migrate as `open` does, even if this store was created with migrate=False."""
        other = SQLiteStore(self._path, synchronous=self._synchronous, clock=self._clock)
        await other.open(runtime)
        await other.close()

    def join(self, connection: Any, runtime: Runtime) -> SQLiteJoined:
        """Return the store inside the caller's transaction, on the caller's connection to the same file."""
        driver = driver_connection(connection, runtime)
        check_connection(driver, self._connection.file, self.name)
        block = transaction_block(connection)
        return SQLiteJoined(driver, runtime, self._clock, self.name, block=block, wrapper=connection)

    # ── blocking, called with the connection's lock held ─────────────────────────────────────────────────────────

    def _run(self, timeout: float, work: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        return self._run_within(TimeLimit.of(timeout), work, *arguments)

    def _run_within(self, time_limit: TimeLimit, work: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        """Run the work where the runtime allows blocking. In memory nothing blocks; a closed store only raises."""
        offload = _call if self._runtime is None or self.inline else self._runtime.offload
        return offload(self._connection.run, time_limit, work, *arguments)

    def _apply(self, cursor: Cursor, requests: Sequence[AnyRequest], ids: Sequence[bytes]) -> list[Answer]:
        """Read without the lock first. If nothing changes, no lock is taken; one record is written by one statement."""
        if len(requests) == 1:
            answer = self._apply_cached(cursor, requests[0])
            if answer is not None:
                return [answer]
        elif not all(isinstance(one, ClaimRequest) for one in requests):  # something will change, so skip the read
            return self._apply_in_transaction(cursor, requests, ids)
        found = SELECT_RECORDS.fetch(cursor, ids)
        answers, changes = compute_answers(found, transitions.apply, requests, self._clock.now())
        if not changes or self._write_single(cursor, found, answers):
            return answers
        return self._apply_in_transaction(cursor, requests, ids)

    def _apply_cached(self, cursor: Cursor, request: AnyRequest) -> Answer | None:
        """Apply the request to the cached record. None: not cached, the cache was stale, or nothing changes."""
        cached = self._record_cache.take((request,))
        if not cached:
            return None
        before, now = cached[request.id], self._clock.now()
        record, verdict = transitions.apply(before, request, now)
        if record is None or record == before or not self._write_if_unchanged(cursor, before, record):
            return None
        return Answer(verdict, record, now)

    def _write_single(self, cursor: Cursor, found: Found, answers: Sequence[Answer]) -> bool:
        """Write one record by one statement. False: the record changed meanwhile, or there are several."""
        record = answers[0].record
        if len(answers) > 1 or record is None:
            return False
        return self._write_if_unchanged(cursor, found.get(record.id), record)

    def _write_if_unchanged(self, cursor: Cursor, before: Record | None, record: Record) -> bool:
        written = insert_if_absent(cursor, record) if before is None else update_if_unchanged(cursor, before, record)
        if written:
            self._connection.check_file_after_write()
            self._record_cache.add(record)
        return written

    def _apply_in_transaction(
        self, cursor: Cursor, requests: Sequence[AnyRequest], ids: Sequence[bytes]
    ) -> list[Answer]:
        try:
            answers = self._connection.write(
                cursor, self._apply_locked, requests, ids, self._record_cache.take(requests)
            )
        except StaleCache:
            answers = self._connection.write(cursor, self._apply_locked, requests, ids, {})
        for answer in answers:
            self._record_cache.add(answer.record)
        return answers

    def _apply_locked(
        self,
        cursor: Cursor,
        requests: Sequence[AnyRequest],
        ids: Sequence[bytes],
        cached: Mapping[bytes, Record | None],
    ) -> list[Answer]:
        unknown = [id for id in ids if id not in cached] if cached else ids
        found = SELECT_RECORDS.fetch(cursor, unknown) if unknown else {}
        found.update((id, record) for id, record in cached.items() if record is not None)
        now = self._clock.now()  # after waiting for the lock
        answers, _ = compute_answers(found, transitions.apply, requests, now)
        write(cursor, found, answers, cached)
        return answers

    def _settle_signed(
        self, cursor: Cursor, signed: AuditSignature, settlements: Sequence[AnySettlement], ids: Sequence[bytes]
    ) -> list[Answer]:
        return self._connection.write(cursor, self._apply_signed, signed, settlements, ids)

    def _apply_signed(
        self, cursor: Cursor, signed: AuditSignature, settlements: Sequence[AnySettlement], ids: Sequence[bytes]
    ) -> list[Answer]:
        found = SELECT_RECORDS.fetch(cursor, ids)
        answers, changes = compute_answers(found, transitions.settle, settlements, self._clock.now())
        if changes:
            write(cursor, found, answers)
            sign(cursor, signed, found, answers)
        return answers

    def _examine(self, timeout: float) -> Schema:
        if self.inline:
            return Schema(LATEST, LATEST, 1, ())
        try:
            return examine(self._path, timeout)
        except sqlite3.Error as error:
            raise sqlite_errors.explain(error, self.name, self._path) from error

    def _read(self, cursor: Cursor, ids: Sequence[bytes]) -> list[Answer]:
        found = SELECT_RECORDS.fetch(cursor, ids)
        now = self._clock.now()
        return [Answer(Verdict.OK if id in found else Verdict.ABSENT, found.get(id), now) for id in ids]

    def _forget(self, cursor: Cursor, *arguments: Any) -> list[Answer]:
        return self._connection.write(cursor, self._forget_locked, *arguments)

    def _forget_locked(
        self,
        cursor: Cursor,
        ids: Sequence[bytes],
        force: bool,  # noqa: FBT001 (offloaded)
        seen: Mapping[bytes, ExpectedRecord],
        signed: AuditSignature | None,
    ) -> list[Answer]:
        return forget(cursor, ids, self._clock.now(), force=force, seen=seen, signed=signed)

    def _scan(self, cursor: Cursor, wanted: Filter, after: bytes | None, limit: int, deadline: float) -> Page:
        with maintenance.with_deadline(cursor, deadline):
            return maintenance.scan(cursor, wanted, after, limit, self._clock.now())

    def _first(self, cursor: Cursor, wanted: Filter, order: SortOrder, limit: int, deadline: float) -> Page:
        with maintenance.with_deadline(cursor, deadline):
            return maintenance.first(cursor, wanted, order, limit, self._clock.now())

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


async def _call(call: Callable[..., T], *arguments: Any) -> T:
    return call(*arguments)


def _with_settings(path: str, synchronous: str, clock: Clock, migrate: bool) -> SQLiteStore:  # noqa: FBT001 (pickled)
    return SQLiteStore(path, synchronous=synchronous, clock=clock, migrate=migrate)
