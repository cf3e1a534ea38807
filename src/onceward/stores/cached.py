"""A bounded local cache of completed results in front of a store. Another client's `forget` is not seen here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import AuditEntry, AuditFilter, Signature
from onceward.protocol.capabilities import (
    NO_BOUND,
    Bounds,
    JoinedStore,
    JoinsTransaction,
    KeepsCounters,
    KeepsLatest,
    ListsLatest,
    Notifies,
    Overlaps,
)
from onceward.protocol.counters import Counted, Sheet
from onceward.protocol.latest import DedupMark, EntityState, EventDelivery, LatestResult, Retention
from onceward.protocol.ports import Clock, Filter, Page, Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, Complete, Renewal, Seen, Verdict
from onceward.protocol.runtime import Runtime

from .clock import SteadyClock
from .mutex import Mutex


class CachedStore:
    """Answers replays and mismatches of records seen COMPLETED; asks the store for everything else.

    Judged by the same state table, so a cached record answers exactly as the stored one would, and only inside its
    window. The time is that of the store's own `clock`, if it shows one, or follows the offset seen in its last answer.
    """

    def __init__(self, store: Store, size: int, *, clock: Clock | None = None) -> None:
        if size < 1:
            raise ConfigurationError("a cache needs room for at least one result", hint="leave cache out to have none")
        self._front(store, _Results(size, clock or getattr(store, "clock", None) or SteadyClock()))

    def _front(self, store: Store, results: _Results) -> None:
        self.name = f"{store.name} (cached)"
        self.inline = store.inline
        self.largest = store.largest if isinstance(store, Bounds) else NO_BOUND
        self.parts = store.parts if isinstance(store, Overlaps) else 1
        self._store = store
        self._results = results

    def twin(self) -> Store:
        """Without the cache: the keeper renews leases and replays nothing."""
        return self._store.twin()

    def beside(self) -> CachedStore:
        """A twin with the same cache, for the other face of the client: what one forgets, both forget."""
        other = object.__new__(CachedStore)
        other._front(self._store.twin(), self._results)
        return other

    async def open(self, runtime: Runtime) -> None:
        await self._store.open(runtime)

    async def close(self) -> None:
        await self._store.close()

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        results = self._results
        answers = [results.known(request) for request in requests]
        asked = [request for request, answer in zip(requests, answers, strict=True) if answer is None]
        if not asked:
            return [answer for answer in answers if answer is not None]
        generation = results.generation
        fresh = iter(await self._store.claim(asked, timeout=timeout))
        return [results.remember(next(fresh), generation) if answer is None else answer for answer in answers]

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return await self._store.renew(renewals, timeout=timeout)

    async def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: Signature | None = None
    ) -> list[Answer]:
        generation = self._results.generation
        at_length = [replace(one, briefly=False) if type(one) is Complete else one for one in settlements]
        answers = await self._store.settle(at_length, timeout=timeout, signed=signed)
        return [self._results.remember(answer, generation) for answer in answers]

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._store.read(ids, timeout=timeout)

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, Seen] | None = None,
        signed: Signature | None = None,
    ) -> list[Answer]:
        try:
            return await self._store.forget(ids, force=force, timeout=timeout, seen=seen, signed=signed)
        finally:  # not before, or a claim that begins meanwhile would bring the record back
            self._results.forget(ids)

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await self._store.scan(wanted, cursor=cursor, limit=limit, timeout=timeout)

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await self._store.counts(timeout=timeout)

    async def purge(self, limit: int, *, timeout: float, signed: Signature | None = None) -> int:
        return await self._store.purge(limit, timeout=timeout, signed=signed)

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await self._store.audit(wanted, limit=limit, timeout=timeout)

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        if isinstance(self._store, Notifies):
            return self._store.watch(id, wake)
        return _nothing

    def join(self, connection: Any, runtime: Runtime) -> JoinedStore:
        if not isinstance(self._store, JoinsTransaction):
            raise ConfigurationError(f"{self._store.name} cannot join a transaction of yours")
        return self._store.join(connection, runtime)

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        return await self._newest_behind().apply_events(deliveries, keep, timeout=timeout)

    async def newest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        return await self._newest_behind().newest(ids, timeout=timeout)

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        return await self._store.expire_latest(limit, timeout=timeout) if isinstance(self._store, KeepsLatest) else 0

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        return await self._shown_behind().entities(scope, cursor=cursor, limit=limit, timeout=timeout)

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        return await self._shown_behind().marks(ids, timeout=timeout)

    def _shown_behind(self) -> ListsLatest:
        if not isinstance(self._store, ListsLatest):
            raise ConfigurationError(f"{self._store.name} cannot list entities and messages")
        return self._store

    def _newest_behind(self) -> KeepsLatest:
        if not isinstance(self._store, KeepsLatest):
            raise ConfigurationError(f"{self._store.name} cannot keep the newest state of entities")
        return self._store

    async def keep_counts(self, sheets: Sequence[Sheet], *, timeout: float) -> int:
        return await self._counts_behind().keep_counts(sheets, timeout=timeout)

    async def counted(self, since: int, *, timeout: float) -> Counted:
        return await self._counts_behind().counted(since, timeout=timeout)

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        return await self._store.expire_counts(limit, timeout=timeout) if isinstance(self._store, KeepsCounters) else 0

    def _counts_behind(self) -> KeepsCounters:
        if not isinstance(self._store, KeepsCounters):
            raise ConfigurationError(f"{self._store.name} cannot keep counts")
        return self._store


class _Results:
    """The completed records themselves, shared by both faces of a client."""

    def __init__(self, size: int, clock: Clock) -> None:
        self.generation = 0  # of what is known: an answer asked for before a `forget` is not remembered after it
        self._size = size
        self._clock = clock
        self._offset = 0
        self._records: OrderedDict[bytes, Record] = OrderedDict()
        self._alone = Mutex()

    def __len__(self) -> int:
        return len(self._records)

    def known(self, request: ClaimRequest) -> Answer | None:
        return self._alone(self._known, request)

    def remember(self, answer: Answer, generation: int) -> Answer:
        record = answer.record
        if record is not None and record.state is RecordState.COMPLETED:
            self._alone(self._remember, record, answer.now, generation)
        return answer

    def forget(self, ids: Sequence[bytes]) -> None:
        self._alone(self._forget, ids)

    def _known(self, request: ClaimRequest) -> Answer | None:
        record = self._records.get(request.id)
        if record is None:
            return None
        now = self._clock.now() + self._offset
        after, verdict = transitions.claim(record, request, now)
        if after is record and verdict in (Verdict.REPLAY, Verdict.MISMATCH):
            self._records.move_to_end(request.id)
            return Answer(verdict, record, now)
        del self._records[request.id]
        return None

    def _remember(self, record: Record, now: int, generation: int) -> None:
        if generation == self.generation:
            self._offset = now - self._clock.now()
            self._records[record.id] = record
            self._records.move_to_end(record.id)
        if len(self._records) > self._size:
            self._records.popitem(last=False)

    def _forget(self, ids: Sequence[bytes]) -> None:
        self.generation += 1
        for id in ids:
            self._records.pop(id, None)


def _nothing() -> None: ...
