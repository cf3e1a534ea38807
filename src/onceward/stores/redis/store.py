"""RedisStore: records on a Redis or Valkey server, which applies the state table in Lua, one call per batch.

A claim, a replay, a renewal or a settlement takes one round trip, and concurrent calls share one. Requests that change
nothing write nothing. The clock is the server's. The server expires records when they are no longer needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceward.errors import ConfigurationError
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature
from onceward.protocol.capabilities import (
    BuiltInCapabilities,
    Health,
    HealthFinding,
)
from onceward.protocol.ports import Clock, Filter, Page, SortOrder
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnySettlement, ExpectedRecord
from onceward.protocol.runtime import Answers, Runtime

from . import maintenance, records, safety
from .address import RedisAddress, from_client, parse
from .calls import MAX_BATCH, encode_signature
from .counters import RedisCounters
from .erasure import RedisErasure
from .history import RedisHistory
from .requests import Forget
from .transport import ClosedTransport, RedisTransport, Reply

if TYPE_CHECKING:
    from .notifier import RedisNotifier


PREFIX = "onceward"
MAX_PREFIX_LENGTH = 200
MAX_IN_FLIGHT = 2
"""Batches in flight on an event loop: the server works on one while this process prepares the other."""

OPEN_TIMEOUT = 5.0  # seconds; the same as that of most calls, which then use this connection with its own timeout


class RedisStore(RedisErasure, RedisCounters, RedisHistory, BuiltInCapabilities):
    """Stores records on one server: `where` is a URL, or your own `redis.Redis` or `redis.asyncio.Redis`.

    `prefix` starts every Redis key, so that several stores can share a server. Opening the store raises if the server
    evicts keys or keeps nothing through a restart. `unsafe_eviction=True` and `unsafe_persistence=True` accept that
    risk. `clock` is for tests; by default the server's clock is used.
    """

    inline = False

    def __init__(
        self,
        where: Any,
        *,
        prefix: str = PREFIX,
        unsafe_eviction: bool = False,
        unsafe_persistence: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(where, str):
            where, settings = parse(where)
            prefix = settings.get("prefix", prefix)
            unsafe_eviction = settings.get(safety.EVICTION, unsafe_eviction)
            unsafe_persistence = settings.get(safety.PERSISTENCE, unsafe_persistence)
        self._address: RedisAddress = where if isinstance(where, RedisAddress) else from_client(where)
        self._prefix = _check_prefix(prefix)
        name = self._address.name + ("" if prefix == PREFIX else f" ({prefix})")
        super().__init__(name, b"{%b}:" % self._prefix.encode(), clock)
        self._unsafe_eviction = unsafe_eviction
        self._unsafe_persistence = unsafe_persistence
        self._checked = False
        self._runtime: Runtime | None = None
        self._opening = threading.Lock()
        self._notifier: RedisNotifier | None = None

    def clone(self) -> RedisStore:
        other = _with_settings(*self._settings())
        other._checked = self._checked  # noqa: SLF001 (same class)
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the settings: the other process opens its own connections."""
        return _with_settings, self._settings()

    def _settings(self) -> tuple[RedisAddress, str, bool, bool, Clock | None]:
        return self._address, self._prefix, self._unsafe_eviction, self._unsafe_persistence, self.clock

    # ── capabilities ──

    @property
    def health(self) -> Health:
        return self

    @property
    def batch_splits(self) -> int:
        return 2

    async def open(self, runtime: Runtime) -> None:
        await self._connect(runtime)
        if not self._checked:
            info = await self._server_info(OPEN_TIMEOUT)
            with self._opening:  # several callers may open at the same time: log a warning only once
                self._require(info)

    async def open_for_inspection(self, runtime: Runtime) -> None:
        """Open for `onceward doctor`, which also inspects unsafe servers. They stay refused for work."""
        await self._connect(runtime)
        safety.raise_if_too_old(await self._server_info(OPEN_TIMEOUT), self.name)

    async def _connect(self, runtime: Runtime) -> None:
        with self._opening:  # several callers may open at the same time; the last runtime wins
            previous, replaces = self._transport, runtime is not self._runtime
            if replaces:
                self._transport, self._runtime = _transport_for(self._address, runtime), runtime
                self._batcher = runtime.batcher(self.send, max_in_flight=MAX_IN_FLIGHT)
        if replaces:
            await previous.close()

    def _require(self, info: safety.ServerInfo) -> None:
        if not self._checked:
            safety.raise_if_unsafe(
                info,
                self.name,
                unsafe_eviction=self._unsafe_eviction,
                unsafe_persistence=self._unsafe_persistence,
            )
            self._checked = True

    async def close(self) -> None:
        transport, self._transport, self._batcher = self._transport, ClosedTransport(self.name), None
        self._runtime = None
        notifier, self._notifier = self._notifier, None
        if notifier is not None:
            notifier.close()
        await transport.close()

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when the record is settled: directly by this process, or through the server by others."""
        from .notifier import RedisNotifier

        stop = super().watch(id, wake)
        if self._notifier is None:
            self._notifier = RedisNotifier(self._address, self._channels, lambda settled: self.wake([settled]))
        unsubscribe = self._notifier.listen(id)

        def stop_both() -> None:
            stop()
            unsubscribe()

        return stop_both

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    def settle(  # pyright: ignore[reportIncompatibleMethodOverride]  # both are awaitable
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> Answers:
        if signed is not None:
            return self.send(settlements, timeout, signed)
        return self.send_batched(settlements, timeout)

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        deadline = time.monotonic() + timeout
        answers: list[Answer] = []
        for start in range(0, len(ids), MAX_BATCH):
            chunk = ids[start : start + MAX_BATCH]
            keys = (self._audit, *[self._record + id for id in chunk])
            now, *found = await self.run("read", keys, (), deadline - time.monotonic())
            answers += [records.decode_read(id, data, now) for id, data in zip(chunk, found, strict=True)]
        return answers

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, ExpectedRecord] | None = None,
        signed: AuditSignature | None = None,
    ) -> list[Answer]:
        expected = seen or {}
        forgets = [Forget(id, expected.get(id), force) for id in ids]
        return await self.send(forgets, timeout, signed)

    @property
    def record_keys(self) -> bytes:
        return maintenance.key_pattern(self._record)

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await maintenance.scan(self, wanted, cursor, limit, timeout)

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        return await maintenance.first(self, wanted, order, limit, timeout)

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await maintenance.counts(self, timeout)

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        """Trim the audit trail. The server deletes records by itself, unless a test's clock tells the time."""
        return await maintenance.purge(self, limit, timeout, b"" if signed is None else encode_signature(signed))

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await maintenance.audit(self, wanted, limit, timeout)

    async def examine(self, *, timeout: float) -> list[HealthFinding]:
        """Return the findings for `onceward doctor`."""
        info = await self._server_info(timeout)
        return safety.health_findings(
            info, unsafe_eviction=self._unsafe_eviction, unsafe_persistence=self._unsafe_persistence
        )

    async def _server_info(self, timeout: float) -> safety.ServerInfo:
        async def call(payload: bytes) -> Reply:
            return await self._transport.call(payload, timeout, retryable=True)

        return await safety.read_server_info(call, self.name)


def _transport_for(address: RedisAddress, runtime: Runtime) -> RedisTransport:
    if runtime.supports_cancellation:  # calls run as tasks of an event loop
        from .async_connection import AsyncTransport

        return AsyncTransport(address)
    from .connection import ThreadTransport

    return ThreadTransport(address)


def _check_prefix(prefix: str) -> str:
    """Check the prefix. Braces would end the hash tag that keeps all keys of a store in one slot."""
    if not prefix or len(prefix) > MAX_PREFIX_LENGTH or not prefix.isprintable() or set(prefix) & set("{}"):
        raise ConfigurationError(
            f"{prefix!r} is not a valid prefix",
            hint=f"use up to {MAX_PREFIX_LENGTH} printable characters, without braces",
        )
    return prefix


def _with_settings(
    address: RedisAddress,
    prefix: str,
    unsafe_eviction: bool,  # noqa: FBT001 (pickled)
    unsafe_persistence: bool,  # noqa: FBT001 (pickled)
    clock: Clock | None,
) -> RedisStore:
    return RedisStore(
        address, prefix=prefix, unsafe_eviction=unsafe_eviction, unsafe_persistence=unsafe_persistence, clock=clock
    )
