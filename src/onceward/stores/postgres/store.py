"""PostgresStore: records in a PostgreSQL database, on its own clock.

One call of `send` is one round trip for what is common (see `table`). Calls that come while one is under way go
together in the next, as one transaction. Works behind a pooler in transaction mode: nothing is kept on a connection
that another call would need, and there are no prepared statements where a pooler was found.
"""

from __future__ import annotations

import hashlib
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from onceward.errors import ConfigurationError, StoreError, StoreUnavailable
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature
from onceward.protocol.capabilities import HealthFinding, Schema
from onceward.protocol.ports import Clock, Filter, Page, SortOrder
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, ExpectedRecord, Renewal, Verdict
from onceward.protocol.runtime import Answers, Runtime
from onceward.stores.group_commit import GroupCommit
from onceward.stores.watchers import Watchers

from . import maintenance as upkeep
from . import schema
from .counters import PostgresCounters
from .errors import RETRIED, UNPREPARED, PostgresRefused, explain
from .joined import WHERE, PostgresJoined
from .latest import PostgresLatest
from .listener import Listener
from .maintenance import Turn
from .pool import Pool
from .statements import statements
from .table import PostgresTable, ids_of, seen
from .url import Settings, parse

T = TypeVar("T")

MAX_IN_FLIGHT = 2
"""Calls under way, each on a connection of its own: the server works on one while we work on the other's answer."""

OPENING = 30.0  # seconds; a migration may have to wait for others
FIRST_LOOK = 0.02  # seconds between looks at a transaction that is not decided yet
AGAIN = 0.005  # seconds before a transaction of ours that the server refused is tried again


class PostgresStore(PostgresLatest, PostgresCounters, GroupCommit, Watchers):
    """A PostgreSQL database. `clock` replaces the server's own, for tests."""

    inline = False

    def __init__(
        self, url: str | Settings, *, migrate: bool | None = None, clock: Clock | None = None, schema: str | None = None
    ) -> None:
        super().__init__()
        settings = parse(url) if isinstance(url, str) else url
        changes = {"migrate": migrate, "schema": schema}
        self._settings = _changed(settings, {name: value for name, value in changes.items() if value is not None})
        self._clock = clock
        self.name = self._settings.name
        self._runtime: Runtime | None = None
        self._home: tuple[Any, ...] | None = None
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

    def clone(self) -> PostgresStore:
        return PostgresStore(self._settings, clock=self._clock)

    def __reduce__(self) -> tuple[Any, ...]:
        """Only the settings travel: the other process opens connections of its own."""
        return _with_settings, (self._settings, self._clock)

    async def open(self, runtime: Runtime) -> None:
        was = self._runtime
        self._runtime = runtime
        self._pool.open()
        try:
            deadline = time.monotonic() + OPENING
            await self._with(deadline, self._prepare)
        except BaseException:
            self._runtime = was
            if was is None:
                self._pool.close()
            raise
        self.open_batcher(runtime, max_in_flight=min(MAX_IN_FLIGHT, self._settings.connections))

    async def close(self) -> None:
        runtime, self._runtime = self._runtime, None
        self._pool.close()
        if self._listener is not None and runtime is not None:
            await runtime.offload(self._listener.stop)

    # ── those who wait ──────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        if self._listener is not None:
            self._listener.start()
        return super().watch(id, wake)

    async def _tell(self, ids: Sequence[bytes], deadline: float) -> None:
        """Those in this process at once; those elsewhere if that was asked for, and as far as it works."""
        self.wake(ids)
        if self._listener is not None and ids:
            with suppress(StoreError):
                await self._with(deadline, self._notify, ids)

    async def _notify(self, turn: Turn, ids: Sequence[bytes]) -> None:
        await turn.rows(turn.table.statements.notify, self._channel, list(ids))

    def forget_threads(self) -> None:
        """In the child of a fork."""
        self._waiting.clear()
        if self._listener is not None:
            self._listener.reset()

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    async def send(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        """Claims, renewals and settlements, in one transaction."""
        if len(requests) > 1:
            ids_of(requests)
        deadline = time.monotonic() + timeout
        answers = await self._with(deadline, self._apply, requests)
        if self._waiting or self._listener is not None:
            await self._tell([one.id for one in requests if not isinstance(one, ClaimRequest | Renewal)], deadline)
        return answers

    def _apply(self, turn: Turn, requests: Sequence[AnyRequest]) -> Awaitable[list[Answer]]:
        return self._table.apply(turn.wire, requests, turn.now, turn.deadline)

    def settle(  # pyright: ignore[reportIncompatibleMethodOverride]  # awaitable all the same
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> Answers:
        if signed is not None:
            return self._settled(settlements, timeout, signed)
        return self.send_batched(settlements, timeout)

    async def _settled(
        self, settlements: Sequence[AnySettlement], timeout: float, signed: AuditSignature
    ) -> list[Answer]:
        ids = ids_of(settlements)
        answers = await self._call(timeout, upkeep.settle_signed, settlements, signed)
        await self._tell(ids, time.monotonic() + timeout)
        return answers

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._call(timeout, self._read, ids)

    async def _read(self, turn: Turn, ids: Sequence[bytes]) -> list[Answer]:
        sights = seen(await turn.rows(self._table.statements.read, turn.now, list(ids)))
        found = [sights[id] for id in ids]
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
        answers = await self._call(timeout, partial(upkeep.forget, force=force), ids, seen or {}, signed)
        await self._tell(ids, time.monotonic() + timeout)
        return answers

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await self._call(timeout, upkeep.scan, wanted, cursor, limit)

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        return await self._call(timeout, upkeep.first, wanted, order, limit)

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await self._call(timeout, upkeep.counts)

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        """In chunks, each a transaction of its own: one huge DELETE would lock, bloat and deadlock."""
        deadline = time.monotonic() + timeout
        gone = entry = 0
        while gone < limit:
            most = min(limit - gone, upkeep.CHUNK)
            tried, purged, entry = await self._with(deadline, upkeep.purge, most, signed, entry)
            gone += purged
            if tried < most or not purged:
                break
        await self._with(deadline, upkeep.purge_audit)
        return gone

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await self._call(timeout, upkeep.audit, wanted, limit)

    async def examine(self, *, timeout: float) -> list[HealthFinding]:
        return await self._call(timeout, upkeep.examine)

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        return await self._alone(runtime, time.monotonic() + timeout, schema.examine)

    async def migrate(self, runtime: Runtime) -> None:
        await self._alone(runtime, time.monotonic() + OPENING, schema.apply)

    def join(self, connection: Any, runtime: Runtime) -> PostgresJoined:
        """The store within the caller's own transaction, on a connection of theirs to the same database."""
        if self._home is None:
            raise ConfigurationError(f"{self.name} is not open yet", hint="open the store first")
        return PostgresJoined(connection, runtime, self._table, self._home, self._now)

    async def committed(self, number: str, *, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            status = await self._with(deadline, _status, number)
            if status != "in progress":
                break
            if time.monotonic() + FIRST_LOOK >= deadline or self._runtime is None:
                raise StoreUnavailable(f"{self.name}: transaction {number} is still open", hint="ask again later")
            await self._runtime.sleep(FIRST_LOOK)
        if status is None:
            raise StoreUnavailable(f"{self.name}: transaction {number} is too old to be remembered")
        return bool(status == "committed")

    # ── a connection for a while ────────────────────────────────────────────────────────────────────────────────

    def _now(self) -> int | None:
        return None if self._clock is None else self._clock.now()

    async def _prepare(self, turn: Turn) -> None:
        statements = self._table.statements
        await schema.prepare(turn.wire, statements, turn.deadline, migrate=self._settings.migrate)
        [(_, _, *home)] = await turn.wire.ask(WHERE, turn.deadline, f"{statements.prefix}onceward_records")
        self._home = tuple(home)

    async def _call(self, timeout: float, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        return await self._with(time.monotonic() + timeout, work, *arguments)

    async def _with(self, deadline: float, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run `work(turn, *arguments)`. A transaction of ours that the server refuses is repeated."""
        runtime = self._runtime
        if runtime is None:
            raise StoreUnavailable(f"{self.name} is not open", hint="open the store first, and close it last")
        while True:
            wire = await self._pool.lend(runtime, deadline)
            try:
                return await work(Turn(wire, self._table, self._now(), deadline), *arguments)
            except PostgresRefused as error:
                if error.code in UNPREPARED and wire.prepares:
                    self._pool.prepares = wire.prepares = False
                elif error.code not in RETRIED or time.monotonic() + AGAIN >= deadline:
                    raise explain(error, self.name) from error
                await runtime.sleep(AGAIN * (0.5 + runtime.jitter()))
            finally:
                self._pool.give_back(wire)

    async def _alone(self, runtime: Runtime, deadline: float, work: Callable[..., Awaitable[T]]) -> T:
        """With a connection of its own, whether the store is open or not."""
        pool = Pool(self._settings.conninfo, self.name, 1, prepares=False)
        pool.open()
        try:
            wire = await pool.lend(runtime, deadline)
            try:
                return await work(wire, self._table.statements, deadline)
            except PostgresRefused as error:
                raise explain(error, self.name) from error
            finally:
                pool.give_back(wire)
        finally:
            pool.close()


async def _status(turn: Turn, number: str) -> str | None:
    [(status,)] = await turn.wire.ask("SELECT pg_xact_status($1::text::xid8)", turn.deadline, number)
    return None if status is None else str(status)


def _changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    from msgspec.structs import replace

    return replace(settings, **changes) if changes else settings


_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _forget_threads() -> None:
    for store in tuple(_stores):
        store.forget_threads()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_threads)


def _with_settings(settings: Settings, clock: Clock | None) -> PostgresStore:
    return PostgresStore(settings, clock=clock)
