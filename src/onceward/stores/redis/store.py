"""RedisStore: records on a Redis or Valkey server, judged there by the state table in Lua, one call a batch.

A claim, a replay, a renewal and a settlement are one round trip each, and those that arrive together share one. What
changes nothing writes nothing. The time is the server's. Records expire by the server's hand once they answer for
nothing any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature
from onceward.protocol.capabilities import HealthFinding
from onceward.protocol.ports import Clock, Filter, Page, SortOrder
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnySettlement, ExpectedRecord
from onceward.protocol.runtime import Answers, Runtime

from . import maintenance as upkeep
from . import records, safety
from .address import RedisAddress, from_client, parse
from .calls import BATCH, RedisTransport, signature
from .counters import RedisCounters
from .latest_listing import RedisLatestListing
from .resp import Reply

if TYPE_CHECKING:
    from .notifier import RedisNotifier


PREFIX = "onceward"
LONGEST_PREFIX = 200
MAX_IN_FLIGHT = 3
"""Calls under way on the one connection of an event loop: the server works on one while we work on the others."""

OPENING = 10.0  # seconds


class RedisStore(RedisLatestListing, RedisCounters):
    """Records on one server: `where` is a URL, or your own `redis.Redis` or `redis.asyncio.Redis`.

    A server that evicts keys, or keeps nothing through a restart, is refused; `unsafe_eviction=True` and
    `unsafe_persistence=True` take that risk. `clock` is for tests: else the server's own time counts.
    """

    inline = False
    parts = 2

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
        self._place: RedisAddress = where if isinstance(where, RedisAddress) else from_client(where)
        self._prefix = _checked(prefix)
        name = self._place.name + ("" if prefix == PREFIX else f" ({prefix})")
        super().__init__(name, b"{%b}:" % self._prefix.encode(), clock)
        self._unsafe_eviction = unsafe_eviction
        self._unsafe_persistence = unsafe_persistence
        self._examined = False
        self._runtime: Runtime | None = None
        self._opening = threading.Lock()
        self._bell: RedisNotifier | None = None

    def clone(self) -> RedisStore:
        other = _with_settings(*self._settings())
        other._examined = self._examined  # noqa: SLF001 (one of us)
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Only the settings travel: the other process opens connections of its own."""
        return _with_settings, self._settings()

    def _settings(self) -> tuple[RedisAddress, str, bool, bool, Clock | None]:
        return self._place, self._prefix, self._unsafe_eviction, self._unsafe_persistence, self.clock

    async def open(self, runtime: Runtime) -> None:
        await self._connect(runtime)
        if not self._examined:
            facts = await self._facts(OPENING)
            with self._opening:  # many may have asked meanwhile: what is only unwise is told once
                self._require(facts)

    async def open_for_inspection(self, runtime: Runtime) -> None:
        """For `onceward doctor`: an unsafe server is examined like any other, and stays refused for work."""
        await self._connect(runtime)
        safety.require_version(await self._facts(OPENING), self.name)

    async def _connect(self, runtime: Runtime) -> None:
        with self._opening:  # several may open at once; the last world holds
            former, moves = self._wire, self._wire is None or runtime is not self._runtime
            if moves:
                self._wire, self._runtime = _wire(self._place, runtime), runtime
                self._batcher = runtime.batcher(self.send, max_in_flight=MAX_IN_FLIGHT)
        if moves and former is not None:
            await former.close()

    def _require(self, facts: safety.Facts) -> None:
        if not self._examined:
            safety.require(
                facts,
                self.name,
                unsafe_eviction=self._unsafe_eviction,
                unsafe_persistence=self._unsafe_persistence,
            )
            self._examined = True

    async def close(self) -> None:
        wire, self._wire, self._batcher = self._wire, None, None
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()
        if wire is not None:
            await wire.close()

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """Woken by settlements of this process at once, and by those of others by way of the server."""
        from .notifier import RedisNotifier

        stop = super().watch(id, wake)
        if self._bell is None:
            self._bell = RedisNotifier(self._place, self._channels, lambda settled: self.wake([settled]))
        leave = self._bell.listen(id)

        def stop_both() -> None:
            stop()
            leave()

        return stop_both

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    def settle(  # pyright: ignore[reportIncompatibleMethodOverride]  # awaitable all the same
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> Answers:
        if signed is not None:
            return self._judged(settlements, timeout, signed)
        return self.send_batched(settlements, timeout)

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        deadline = time.monotonic() + timeout
        answers: list[Answer] = []
        for start in range(0, len(ids), BATCH):
            some = ids[start : start + BATCH]
            keys = (self._ids, *[self._record + id for id in some])
            data = await self.run("look", keys, (self._time(),), deadline - time.monotonic())
            answers += upkeep.looked(some, data)
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
        sights = seen or {}
        requests = [records.forgetting(sights.get(id), force=force) for id in ids]
        answers = await self._applied(list(ids), ids, requests, timeout, again=False, signed=signed) if ids else []
        self.wake(ids)
        return answers

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await upkeep.scan(self, wanted, cursor, limit, timeout)

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        return await upkeep.first(self, wanted, order, limit, timeout)

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await upkeep.counts(self, timeout)

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        return await upkeep.purge(self, limit, timeout, signature(signed))

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await upkeep.audit(self, wanted, limit, timeout)

    async def examine(self, *, timeout: float) -> list[HealthFinding]:
        """For `onceward doctor`."""
        facts = await self._facts(timeout)
        return safety.remarks(facts, unsafe_eviction=self._unsafe_eviction, unsafe_persistence=self._unsafe_persistence)

    async def _facts(self, seconds: float) -> safety.Facts:
        async def ask(payload: bytes) -> Reply:
            if self._wire is None:
                raise StoreUnavailable(f"{self.name} is not open")
            return await self._wire.call(payload, seconds, again=True)

        return await safety.examine(ask, self.name)


def _wire(place: RedisAddress, runtime: Runtime) -> RedisTransport:
    if runtime.supports_cancellation:  # calls are tasks of an event loop
        from .async_connection import RedisAsyncTransport

        return RedisAsyncTransport(place)
    from .connection import SocketTransport

    return SocketTransport(place)


def _checked(prefix: str) -> str:
    """Braces would end the hash tag that keeps all keys of a store in one slot."""
    if not prefix or len(prefix) > LONGEST_PREFIX or not prefix.isprintable() or set(prefix) & set("{}"):
        raise ConfigurationError(
            f"{prefix!r} cannot be a prefix", hint=f"up to {LONGEST_PREFIX} printable characters, without braces"
        )
    return prefix


def _with_settings(
    place: RedisAddress,
    prefix: str,
    unsafe_eviction: bool,  # noqa: FBT001 (pickled)
    unsafe_persistence: bool,  # noqa: FBT001 (pickled)
    clock: Clock | None,
) -> RedisStore:
    return RedisStore(
        place, prefix=prefix, unsafe_eviction=unsafe_eviction, unsafe_persistence=unsafe_persistence, clock=clock
    )
