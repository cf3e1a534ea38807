"""PostgresStore: records in a PostgreSQL database, on the server's clock.

In the common cases, one call of `send` is one round trip (see `table`). Calls that arrive while one is in flight share
the next one, as one transaction. The store works behind a pooler in transaction mode: it keeps no state on a connection
that another call would need, and prepares no statements if it detects a pooler.
"""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from onceward.errors import ConfigurationError, StoreError, StoreUnavailable
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature
from onceward.protocol.capabilities import (
    BuiltInCapabilities,
    Commits,
    Health,
    HealthFinding,
    Migrations,
    Schema,
    Transactions,
)
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.listing import Listing, ListingFilter, ListingPage
from onceward.protocol.ports import Clock, Filter, Page, SortOrder
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, ExpectedRecord, Renewal, Verdict
from onceward.protocol.runtime import Answers, Runtime
from onceward.stores.group_commit import GroupCommit
from onceward.stores.watchers import Watchers

from . import listing, maintenance, schema
from .counters import PostgresCounters
from .erasure import PostgresErasure
from .errors import RETRYABLE, UNPREPARED, PostgresRefused, explain
from .history import PostgresHistory
from .joined import IDENTIFY, PostgresJoined
from .latest import PostgresLatest
from .listener import Listener
from .maintenance import CallContext
from .pool import Pool
from .statements import statements
from .table import PostgresTable, ids_of, snapshots_from_rows
from .url import PostgresSettings, parse

T = TypeVar("T")

MAX_IN_FLIGHT = 2
"""Calls in flight, each on its own connection: the server works on one while we process the other's answer."""

OPEN_TIMEOUT = 5.0  # seconds; most calls have the same timeout
STATUS_POLL = 0.02  # seconds between two queries for the status of an open transaction
RETRY_DELAY = 0.005  # seconds before a retryable error is retried


class PostgresStore(
    PostgresLatest, PostgresCounters, PostgresHistory, PostgresErasure, GroupCommit, Watchers, BuiltInCapabilities
):
    """A PostgreSQL database at this `url`.

    `schema` is the schema of the tables (default: that of the URL, else the first of the search path). With
    `migrate=True`, opening the store creates them. `clock` replaces the server's clock, for tests.
    """

    inline = False

    def __init__(
        self,
        url: str | PostgresSettings,
        *,
        migrate: bool | None = None,
        clock: Clock | None = None,
        schema: str | None = None,
    ) -> None:
        super().__init__()
        settings = parse(url) if isinstance(url, str) else url
        changes = {"migrate": migrate, "schema": schema}
        self._settings = _with_changes(settings, {name: value for name, value in changes.items() if value is not None})
        self._clock = clock
        self.name = self._settings.name
        self._runtime: Runtime | None = None
        self._tables_identity: tuple[Any, ...] | None = None
        salt = hashlib.sha256(b"onceward " + self._settings.schema.encode()).digest()[:8]
        self._table = PostgresTable(statements(self._settings.schema), int.from_bytes(salt, "big", signed=True))
        self._channel = f"onceward_{salt.hex()}"
        self._listener: Listener | None = None
        if self._settings.notify:
            self._listener = Listener(self._settings.conninfo, self.name, self._channel, self.wake)
        _stores.add(self)
        self._pool = Pool(
            self._settings.conninfo, self.name, self._settings.connections, prepares=self._settings.prepare
        )

    @property
    def listing(self) -> Listing:
        return self

    @property
    def clock(self) -> Clock | None:
        """The test clock that replaces the server's, for wrappers that answer instead of the store."""
        return self._clock

    def clone(self) -> PostgresStore:
        return PostgresStore(self._settings, clock=self._clock)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the settings: the other process opens its own connections."""
        return _with_settings, (self._settings, self._clock)

    async def open(self, runtime: Runtime) -> None:
        """Open the store. A call that fails here does not affect other calls that open it at the same time."""
        self._runtime = runtime
        self._pool.open()
        await self._run_until(time.monotonic() + OPEN_TIMEOUT, self._prepare)
        self.open_batcher(runtime, max_in_flight=min(MAX_IN_FLIGHT, self._settings.connections))

    async def close(self) -> None:
        runtime, self._runtime = self._runtime, None
        self._pool.close()
        if self._listener is not None and runtime is not None:
            await runtime.offload(self._listener.stop)

    # ── capabilities ──

    @property
    def migrations(self) -> Migrations:
        return self

    @property
    def transactions(self) -> Transactions:
        return self

    @property
    def commits(self) -> Commits:
        return self

    @property
    def health(self) -> Health:
        return self

    # ── waking waiting callers ──────────────────────────────────────────────────────────────────────────────────

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        if self._listener is not None:
            self._listener.start()
        return super().watch(id, wake)

    async def _wake_waiting(self, ids: Sequence[bytes], deadline: float) -> None:
        """Wake waiting callers in this process; with notify=1, notify other processes on a best-effort basis."""
        self.wake(ids)
        if self._listener is not None and ids:
            with suppress(StoreError):
                await self._run_until(deadline, self._notify, ids)

    async def _notify(self, context: CallContext, ids: Sequence[bytes]) -> None:
        await context.rows(context.table.statements.notify, self._channel, list(ids))

    def reset_after_fork(self) -> None:
        """Reset waiting callers and the listener in a forked child."""
        self._waiting.clear()
        if self._listener is not None:
            self._listener.reset()

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    async def send(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        """Apply claims, renewals and settlements in one transaction."""
        if len(requests) > 1:
            ids_of(requests)
        deadline = time.monotonic() + timeout
        answers = await self._run_until(deadline, self._apply, requests)
        if self._waiting or self._listener is not None:
            await self._wake_waiting(
                [one.id for one in requests if not isinstance(one, ClaimRequest | Renewal)], deadline
            )
        return answers

    def _apply(self, context: CallContext, requests: Sequence[AnyRequest]) -> Awaitable[list[Answer]]:
        return self._table.apply(context.connection, requests, context.now, context.deadline)

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
        answers = await self._run(timeout, maintenance.settle_signed, settlements, signed)
        await self._wake_waiting(ids, time.monotonic() + timeout)
        return answers

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._run(timeout, self._read, ids)

    async def _read(self, context: CallContext, ids: Sequence[bytes]) -> list[Answer]:
        snapshots = snapshots_from_rows(await context.rows(self._table.statements.read, context.now, list(ids)))
        found = [snapshots[id] for id in ids]
        return [Answer(Verdict.OK if one.record else Verdict.ABSENT, one.record, one.now) for one in found]

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, ExpectedRecord] | None = None,
        signed: AuditSignature | None = None,
    ) -> list[Answer]:
        answers = await self._run(timeout, partial(maintenance.forget, force=force), ids, seen or {}, signed)
        await self._wake_waiting(ids, time.monotonic() + timeout)
        return answers

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await self._run(timeout, maintenance.scan, wanted, cursor, limit)

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        return await self._run(timeout, maintenance.first, wanted, order, limit)

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await self._run(timeout, maintenance.counts)

    async def newest(self, wanted: ListingFilter, *, cursor: bytes | None, limit: int, timeout: float) -> ListingPage:
        return await self._run(timeout, listing.newest, wanted, cursor, limit)

    async def oldest_pending(self, wanted: ListingFilter, *, limit: int, timeout: float) -> ListingPage:
        return await self._run(timeout, listing.oldest_pending, wanted, limit)

    async def count_unfinished(self, limit: int, *, timeout: float) -> dict[RecordState, int]:
        return await self._run(timeout, listing.count_unfinished, limit)

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        """Purge in chunks, each in a transaction of its own: one huge DELETE would lock, bloat and deadlock."""
        deadline = time.monotonic() + timeout
        total, progress = 0, maintenance.PurgeProgress()
        while total < limit:
            chunk = min(limit - total, maintenance.CHUNK)
            tried, purged = await self._run_until(deadline, maintenance.purge, chunk, signed, progress)
            total += purged
            if tried < chunk or not purged:
                break
        await self._run_until(deadline, maintenance.purge_audit)
        return total

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await self._run(timeout, maintenance.audit, wanted, limit)

    async def open_for_inspection(self, runtime: Runtime) -> None:
        await self.open(runtime)

    async def examine(self, *, timeout: float) -> list[HealthFinding]:
        return await self._run(timeout, maintenance.examine)

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        return await self._run_separately(runtime, time.monotonic() + timeout, schema.examine)

    async def migrate(self, runtime: Runtime) -> None:
        await self._run_separately(runtime, time.monotonic() + schema.MIGRATION_TIMEOUT, schema.apply)

    def join(self, connection: Any, runtime: Runtime) -> PostgresJoined:
        """Return the store inside the caller's transaction, on the caller's connection to the same database."""
        if self._tables_identity is None:
            raise ConfigurationError(f"{self.name} is not open yet", hint="open the store first")
        return PostgresJoined(connection, runtime, self._table, self._tables_identity, self._now)

    async def committed(self, number: str, *, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            status = await self._run_until(deadline, _status, number)
            if status != "in progress":
                break
            if time.monotonic() + STATUS_POLL >= deadline or self._runtime is None:
                raise StoreUnavailable(f"{self.name}: transaction {number} is still open", hint="query it again later")
            await self._runtime.sleep(STATUS_POLL)
        if status is None:
            raise StoreUnavailable(
                f"{self.name}: transaction {number} is too old: the server no longer knows its outcome"
            )
        return bool(status == "committed")

    # ── running calls ───────────────────────────────────────────────────────────────────────────────────────────

    def _now(self) -> int | None:
        return None if self._clock is None else self._clock.now()

    async def _prepare(self, context: CallContext) -> None:
        statements = self._table.statements
        await schema.prepare(context.connection, statements, context.deadline, migrate=self._settings.migrate)
        deadline = time.monotonic() + OPEN_TIMEOUT  # a migration may have taken longer
        [(_, _, *tables_identity)] = await context.connection.query(
            IDENTIFY, deadline, f"{statements.prefix}onceward_records"
        )
        self._tables_identity = tuple(tables_identity)

    async def _run(self, timeout: float, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        return await self._run_until(time.monotonic() + timeout, work, *arguments)

    async def _run_until(self, deadline: float, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run `work(context, *arguments)` with a connection of the pool. Retryable errors of the server are retried."""
        runtime = self._runtime
        if runtime is None:
            raise StoreUnavailable(f"{self.name} is not open", hint="open the store before you use it")
        while True:
            connection = await self._pool.acquire(runtime, deadline)
            try:
                return await work(CallContext(connection, self._table, self._now(), deadline), *arguments)
            except PostgresRefused as error:
                if error.code in UNPREPARED and connection.prepares:
                    self._pool.prepares = connection.prepares = False
                elif error.code not in RETRYABLE or time.monotonic() + RETRY_DELAY >= deadline:
                    raise explain(error, self.name) from error
                await runtime.sleep(RETRY_DELAY * (0.5 + runtime.jitter()))
            finally:
                self._pool.release(connection)

    async def _run_separately(self, runtime: Runtime, deadline: float, work: Callable[..., Awaitable[T]]) -> T:
        """Run the work on a separate connection, whether the store is open or not."""
        pool = Pool(self._settings.conninfo, self.name, 1, prepares=False)
        pool.open()
        try:
            connection = await pool.acquire(runtime, deadline)
            try:
                return await work(connection, self._table.statements, deadline)
            except PostgresRefused as error:
                raise explain(error, self.name) from error
            finally:
                pool.release(connection)
        finally:
            pool.close()


async def _status(context: CallContext, number: str) -> str | None:
    [(status,)] = await context.connection.query("SELECT pg_xact_status($1::text::xid8)", context.deadline, number)
    return None if status is None else str(status)


def _with_changes(settings: PostgresSettings, changes: dict[str, Any]) -> PostgresSettings:
    from msgspec.structs import replace

    return replace(settings, **changes) if changes else settings


_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _reset_all_after_fork() -> None:
    for store in tuple(_stores):
        store.reset_after_fork()


call_in_forked_child(_reset_all_after_fork)


def _with_settings(settings: PostgresSettings, clock: Clock | None) -> PostgresStore:
    return PostgresStore(settings, clock=clock)
