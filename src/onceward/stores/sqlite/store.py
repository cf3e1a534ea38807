"""SQLiteStore: records in a file that several processes share.

Every verb reads the rows, lets `protocol.transitions` decide and writes the changes. A claim first reads without the
write lock: if nothing has to be written (a replay, another worker is running), the lock is not taken. A request of an
owner uses the record that this process wrote last. A single record is written by one statement that applies only if
the record is unchanged. Everything else is a transaction.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import AuditSignature
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
from onceward.protocol.listing import Listing
from onceward.protocol.ports import Clock
from onceward.protocol.record import CompletedRecord, Record, RecordState
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, ExpectedRecord, Renewal, Verdict
from onceward.protocol.runtime import Answers, Runtime
from onceward.stores.caller_connection import driver_connection, is_async_wrapper, transaction_block
from onceward.stores.clock import WallClock
from onceward.stores.group_commit import GroupCommit
from onceward.stores.watchers import Watchers

from . import connection as sqlite_connection
from . import errors as sqlite_errors
from .async_joined import AsyncSQLiteJoined
from .connection import MEMORY, Cursor, SQLiteConnection
from .counters import SQLiteCounters
from .erasure import SQLiteErasure
from .history import SQLiteHistory
from .joined import SQLiteJoined, check_connection
from .latest import SQLiteLatest
from .many_records import SQLiteManyRecords
from .rows import SELECT_COMPLETED, CompletedRow
from .schema import LATEST, examine
from .table import (
    SELECT_RECORDS,
    RecordCache,
    StaleCache,
    compute_answers,
    forget,
    ids_of,
    sign,
    write,
    write_if_unchanged,
)
from .url import absolute, checked_synchronous, name_of

T = TypeVar("T")
Offload = Callable[..., Coroutine[Any, Any, Any]]


class SQLiteStore(
    SQLiteLatest,
    SQLiteCounters,
    SQLiteHistory,
    SQLiteErasure,
    SQLiteManyRecords,
    GroupCommit,
    Watchers,
    Capabilities,
):
    """A SQLite file in WAL mode. With `synchronous="FULL"`, acknowledged writes survive a power cut.

    `path` is the file, which is created if missing. `":memory:"` is one shared connection for one process; it cannot
    join transactions. With `migrate=False`, opening a file without tables raises StoreNotSetUp. `clock` is for tests,
    such as a `FakeClock`.
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
        self._offload: Offload | None = None  # of an event loop, which a call would block
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
        self._runtime = runtime  # set even if opening fails, because `close` uses it
        await runtime.offload(self._connection.open)
        if self.inline:  # calls in memory never wait, so batching would only delay them
            return
        self._offload = runtime.offload if runtime.supports_cancellation else None
        self.open_batcher(runtime)

    async def close(self) -> None:
        runtime, self._runtime, self._offload = self._runtime, None, None
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
    def listing(self) -> Listing:
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
        stored, *values, state = row
        if state is not None:
            return None
        done = CompletedRow(stored != 0, *values)
        return done if transitions.replays(done, fingerprint, self._clock.now()) else None

    async def send(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        """Apply claims, renewals and settlements, at most one per key."""
        deadline = time.monotonic() + timeout
        work = self._apply_one if len(requests) == 1 else self._apply_many
        if self._offload is None:
            answers = self._connection.run(deadline, work, requests)
        else:
            answers = await self._offload(self._connection.run, deadline, work, requests)
        if self._waiting:
            self.wake(one.id for one in requests if not isinstance(one, ClaimRequest | Renewal))
        return answers

    def settle(  # pyright: ignore[reportIncompatibleMethodOverride]  # both are awaitable
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> Answers:
        if signed is not None:
            return self._settle_signed(settlements, timeout, signed)
        return self.send_batched(settlements, timeout)

    async def _settle_signed(
        self, settlements: Sequence[AnySettlement], timeout: float, signed: AuditSignature
    ) -> list[Answer]:
        ids = ids_of(settlements)
        answers: list[Answer] = await self._run(
            timeout, self._connection.write, self._apply_signed, signed, settlements, ids
        )
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
        answers: list[Answer] = await self._run(
            timeout, self._connection.write, self._forget, ids, force, seen or {}, signed
        )
        self.wake(ids)
        return answers

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        return await runtime.offload(self._examine, timeout)

    async def migrate(self, runtime: Runtime) -> None:
        """Migrate as `open` does, even if this store was created with migrate=False."""
        other = SQLiteStore(self._path, synchronous=self._synchronous, clock=self._clock)
        await other.open(runtime)
        await other.close()

    def join(self, connection: Any, runtime: Runtime) -> SQLiteJoined:
        """Return the store inside the caller's transaction, on the caller's connection to the same file."""
        file = self._connection.file
        block = transaction_block(connection)
        if is_async_wrapper(connection) and runtime.supports_cancellation:
            return AsyncSQLiteJoined(connection, runtime, self._clock, self.name, block=block, file=file)
        driver = driver_connection(connection, runtime)
        check_connection(driver, file, self.name)
        return SQLiteJoined(driver, runtime, self._clock, self.name, block=block, wrapper=connection)

    def _run(self, timeout: float, work: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        return self._run_until(time.monotonic() + timeout, work, *arguments)

    async def _run_until(self, deadline: float, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work(cursor, *arguments)` where the runtime allows blocking."""
        if self._offload is None:
            return self._connection.run(deadline, work, *arguments)
        result: T = await self._offload(self._connection.run, deadline, work, *arguments)
        return result

    # ── blocking, called with the connection's lock held ─────────────────────────────────────────────────────────

    def _apply_one(self, cursor: Cursor, requests: Sequence[AnyRequest]) -> list[Answer]:
        """Apply a single request to the cached record, or else to the stored one, and write it by one statement."""
        request = requests[0]
        cached = self._record_cache.take(requests)
        before = cached[request.id] if cached else SELECT_RECORDS.fetch(cursor, (request.id,)).get(request.id)
        now = self._clock.now()
        record, verdict = transitions.VERBS[type(request)](before, request, now)
        unchanged = record == before
        if unchanged and not cached:
            return [Answer(verdict, record, now)]
        if not unchanged and write_if_unchanged(cursor, before, record):
            if time.monotonic() - self._connection.checked_at > sqlite_connection.FILE_CHECK_INTERVAL_WRITING:
                self._connection.check_file()
            if record.state is RecordState.PENDING:
                self._record_cache.add(record)
            return [Answer(verdict, record, now)]
        if cached:  # the cached record is outdated, or was not compared with the stored one: read it
            return self._apply_one(cursor, requests)
        return self._apply_in_transaction(cursor, requests, {})

    def _apply_many(self, cursor: Cursor, requests: Sequence[AnyRequest]) -> list[Answer]:
        """Apply the requests in one transaction. Claims that change nothing take no lock."""
        ids = ids_of(requests)
        cached = self._record_cache.take(requests)
        if not cached and all(isinstance(one, ClaimRequest) for one in requests):
            found = SELECT_RECORDS.fetch(cursor, ids)
            answers, changes = compute_answers(found, transitions.apply, requests, self._clock.now())
            if not changes:
                return answers
            cached = {id: None for id in ids if id not in found}
        return self._apply_in_transaction(cursor, requests, cached)

    def _apply_in_transaction(
        self, cursor: Cursor, requests: Sequence[AnyRequest], cached: Mapping[bytes, Record | None]
    ) -> list[Answer]:
        try:
            answers = self._connection.write(cursor, self._apply_locked, requests, cached)
        except StaleCache:
            answers = self._connection.write(cursor, self._apply_locked, requests, {})
        for answer in answers:
            if answer.record is not None and answer.record.state is RecordState.PENDING:
                self._record_cache.add(answer.record)
        return answers

    def _apply_locked(
        self, cursor: Cursor, requests: Sequence[AnyRequest], cached: Mapping[bytes, Record | None]
    ) -> list[Answer]:
        unknown = [one.id for one in requests if one.id not in cached]
        found = SELECT_RECORDS.fetch(cursor, unknown) if unknown else {}
        found.update((id, record) for id, record in cached.items() if record is not None)
        now = self._clock.now()  # after waiting for the lock
        answers, _ = compute_answers(found, transitions.apply, requests, now)
        write(cursor, found, answers, cached)
        return answers

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

    def _forget(
        self,
        cursor: Cursor,
        ids: Sequence[bytes],
        force: bool,  # noqa: FBT001 (offloaded)
        seen: Mapping[bytes, ExpectedRecord],
        signed: AuditSignature | None,
    ) -> list[Answer]:
        return forget(cursor, ids, self._clock.now(), force=force, seen=seen, signed=signed)


def _with_settings(path: str, synchronous: str, clock: Clock, migrate: bool) -> SQLiteStore:  # noqa: FBT001 (pickled)
    return SQLiteStore(path, synchronous=synchronous, clock=clock, migrate=migrate)
