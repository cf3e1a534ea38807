"""A bounded local cache of completed results in front of a store. It does not notice `forget` by another client."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature
from onceward.protocol.capabilities import DelegatedCapabilities, Lookup
from onceward.protocol.ports import Clock, Filter, Page, Store
from onceward.protocol.record import CompletedRecord, Record, RecordState
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, ExpectedRecord, Renewal, Verdict
from onceward.protocol.runtime import Runtime

from .clock import SteadyClock
from .mutex import Mutex


class CachedStore(DelegatedCapabilities):
    """Answers replays and mismatches from cached COMPLETED records, and forwards every other call to the store.

    It applies the same state table, so a cached record gives the same answer as the stored one, only within its window.
    The time comes from the store's `clock`, if it has one, else from local time plus the offset of the last answer.
    """

    def __init__(self, store: Store, size: int, *, clock: Clock | None = None) -> None:
        if size < 1:
            raise ConfigurationError("cache= must be at least 1", hint="omit cache= to disable the cache")
        self._wrap(store, _ResultCache(size, clock or getattr(store, "clock", None) or SteadyClock()))

    def _wrap(self, store: Store, results: _ResultCache) -> None:
        self.name = f"{store.name} (cached)"
        self.inline = store.inline
        self._store = store
        self._results = results

    def clone(self) -> Store:
        """Return a clone without the cache: the heartbeat renews leases and never replays."""
        return self._store.clone()

    def clone_with_cache(self) -> CachedStore:
        """Return a clone that shares this cache, for a client's sync or async counterpart: `forget` affects both."""
        other = object.__new__(CachedStore)
        other._wrap(self._store.clone(), self._results)
        return other

    async def open(self, runtime: Runtime) -> None:
        await self._store.open(runtime)

    async def close(self) -> None:
        await self._store.close()

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        results = self._results
        answers = [results.lookup(request) for request in requests]
        missing = [request for request, answer in zip(requests, answers, strict=True) if answer is None]
        if not missing:
            return [answer for answer in answers if answer is not None]
        generation = results.generation
        fresh = iter(await self._store.claim(missing, timeout=timeout))
        return [results.remember(next(fresh), generation) if answer is None else answer for answer in answers]

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return await self._store.renew(renewals, timeout=timeout)

    async def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> list[Answer]:
        generation = self._results.generation
        answers = await self._store.settle(settlements, timeout=timeout, signed=signed)
        return [self._results.remember(answer, generation) for answer in answers]

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._store.read(ids, timeout=timeout)

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, ExpectedRecord] | None = None,
        signed: AuditSignature | None = None,
    ) -> list[Answer]:
        try:
            return await self._store.forget(ids, force=force, timeout=timeout, seen=seen, signed=signed)
        finally:  # afterwards, or a concurrent claim would put the record back into the cache
            self._results.forget(ids)

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await self._store.scan(wanted, cursor=cursor, limit=limit, timeout=timeout)

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await self._store.counts(timeout=timeout)

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        return await self._store.purge(limit, timeout=timeout, signed=signed)

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await self._store.audit(wanted, limit=limit, timeout=timeout)

    @property
    def lookup(self) -> Lookup:
        """Look up in the cache first. Every store with a cache has a lookup."""
        return self._lookup

    def _lookup(self, id: bytes, fingerprint: bytes, /) -> CompletedRecord | None:
        cached = self._results.replay(id, fingerprint)
        if cached is not None or self._store.lookup is None:
            return cached
        return self._store.lookup(id, fingerprint)


class _ResultCache:
    """The cached records, shared by a sync client and its async counterpart."""

    def __init__(self, size: int, clock: Clock) -> None:
        self.generation = 0  # raised by `forget`, so that an answer requested before it is not cached after it
        self._size = size
        self._clock = clock
        self._offset = 0
        self._records: OrderedDict[bytes, Record] = OrderedDict()
        self._mutex = Mutex()

    def __len__(self) -> int:
        return len(self._records)

    def lookup(self, request: ClaimRequest) -> Answer | None:
        return self._mutex.run(self._lookup, request)

    def replay(self, id: bytes, fingerprint: bytes) -> Record | None:
        """Return the record if a claim would replay it without writing anything."""
        return self._mutex.run(self._replay, id, fingerprint)

    def remember(self, answer: Answer, generation: int) -> Answer:
        record = answer.record
        if record is not None and record.state is RecordState.COMPLETED:
            self._mutex.run(self._remember, record, answer.now, generation)
        return answer

    def forget(self, ids: Sequence[bytes]) -> None:
        self._mutex.run(self._forget, ids)

    def _lookup(self, request: ClaimRequest) -> Answer | None:
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

    def _replay(self, id: bytes, fingerprint: bytes) -> Record | None:
        record = self._records.get(id)
        if record is None or not transitions.replays(record, fingerprint, self._clock.now() + self._offset):
            return None
        self._records.move_to_end(id)
        return record

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
