"""MemoryStore: the state table itself, applied to a dict. For tests, and for work that one process does alone."""

from __future__ import annotations

import heapq
import os
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import AuditEntry, AuditFilter, Signature, entries_of, purge_entry
from onceward.protocol.cells import acquire_new_cycle, complete_record
from onceward.protocol.ports import SORT_KEYS, Clock, Filter, Page, SortOrder
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, Complete, Renewal, Seen, Verdict
from onceward.protocol.runtime import Runtime
from onceward.stores.clock import SteadyClock
from onceward.stores.mutex import Mutex
from onceward.stores.watchers import Watchers

from .audit import MemoryAudit
from .counters import MemoryCounters
from .forked import ForkedEntries, ForkedStore
from .latest import MemoryLatest
from .records import MemoryRecords

VERBS, CLAIM, SETTLE = transitions.VERBS, transitions.claim, transitions.settle
PENDING = RecordState.PENDING
replays = transitions.replays
Change = Callable[[Record | None, int], tuple[Record | None, Verdict]]


class MemoryStore(MemoryRecords, MemoryLatest, MemoryCounters, Watchers):
    """Records in a dict; O(1) a call at any size (O(log n) for what expires). `max_records` bounds it.

    A full store raises StoreFull and claims nothing: only keys that answer for nothing any more are evicted.

    A record is never changed: the next one takes its place, if it still stands there. Only that exchange is locked, for
    a step in which no call is made, so that no signal handler comes in between. What is more than one step (what has
    expired, the audit trail) is done alone.
    """

    inline = True

    def __init_subclass__(cls) -> None:
        """A verb that a subclass has changed is not passed by: then nothing is answered at once."""
        super().__init_subclass__()
        changed = any(getattr(cls, verb) is not getattr(MemoryStore, verb) for verb in ("claim", "renew", "settle"))
        if changed and cls.answer is MemoryStore.answer:
            setattr(cls, "answer", None)  # noqa: B010 (as classes say that they lack a method; it has one type all the same)

    def __init__(self, *, max_records: int | None = None, clock: Clock | None = None) -> None:
        super().__init__()
        self.name = "memory"
        self._clock = clock or SteadyClock()
        self._now = self._clock.now
        self._max = max_records
        self._trail = MemoryAudit()
        self._mutex = Mutex()
        _stores.add(self)

    @property
    def clock(self) -> Clock:
        """What tells the time here, for those who answer in the store's place."""
        return self._clock

    def twin(self) -> MemoryStore:
        return self

    async def open(self, runtime: Runtime) -> None: ...

    async def close(self) -> None: ...

    def lookup(self, id: bytes, fingerprint: bytes) -> Record | None:
        record = self._records.get(id)
        if record is not None and replays(record, fingerprint, self._now()):
            return record
        return None

    def _one(self, request: AnyRequest) -> Answer:
        """What is usual in few steps: a new key, and the end of a claim whose record nobody has touched. Else judge."""
        clock = self._now
        if type(request) is ClaimRequest:
            id = request.id
            before, now = self._records.get(id), clock()
            if self._noted or self._ending or self._floor:
                now = self._tidy(now)
            if before is None and self._max is None:  # nothing of it ends yet, so there is nothing to note
                record, verdict = acquire_new_cycle(None, request, now)
                if self._records.setdefault(id, record) is record:
                    return Answer(verdict, record, now)
        elif type(request) is Complete and request.of is not None:
            own = request.of
            is_owner = request.nonce is own.nonce and request.token is own.token and request.id is own.id
            if is_owner and own.state is PENDING and not own.released:
                now = clock()
                record, verdict = complete_record(own, request, now)
                if record.valid_until is not None:
                    self._noted.append((record.valid_until, record.id))  # as `_exchange` does
                if self._swap(own, record):  # the very object that was granted: all that the table asks is true
                    if self._waiting:
                        self.wake((record.id,))
                    return Answer(verdict, record, now)
        return self._judge(request)

    answer = _one

    def _judge(self, request: AnyRequest) -> Answer:
        """As the table says."""
        verb, id = VERBS[type(request)], request.id
        while True:
            before, now = self._records.get(id), self._now()  # in this order: what stays there stood there at `now`
            if verb is CLAIM:
                now = self._tidy(now)
            record, verdict = verb(before, request, now)
            if self._records.get(id) is before if record is before else self._exchange(before, record):
                break
        if verb is SETTLE:  # not by a claim: those who wait claim, and would wake each other
            self.wake((id,))
        return Answer(verdict, record, now)

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return [self._one(request) for request in requests]

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return [self._one(renewal) for renewal in renewals]

    async def settle(
        self,
        settlements: Sequence[AnySettlement],
        *,
        timeout: float,
        signed: Signature | None = None,
    ) -> list[Answer]:
        if signed is None:
            return [self._one(settlement) for settlement in settlements]
        answers = self._mutex.run(self._settle_signed, signed, settlements)
        self.wake(one.id for one in settlements)
        return answers

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        get = self._records.get
        while True:
            found, now = list(map(get, ids)), self._now()  # as in `_one`
            if all(get(id) is record for id, record in zip(ids, found, strict=True)):
                break
        return [Answer(Verdict.ABSENT if record is None else Verdict.OK, record, now) for record in found]

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, Seen] | None = None,
        signed: Signature | None = None,
    ) -> list[Answer]:
        answers = self._mutex.run(self._forget, ids, force, seen or {}, signed)
        self.wake(ids)
        return answers

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return self._mutex.run(self._scan, wanted, cursor, limit)

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        return self._mutex.run(self._first, wanted, order, limit)

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return self._mutex.run(self._counts)

    async def purge(self, limit: int, *, timeout: float, signed: Signature | None = None) -> int:
        return self._mutex.run(self._purge, limit, signed)

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return self._mutex.run(self._audit, wanted, limit)

    # ── the same, alone ──

    def _settle_signed(self, signed: Signature, settlements: Sequence[AnySettlement]) -> list[Answer]:
        steps = {one.id: self._step(one.id, partial(_settle, one)) for one in settlements}
        return self._told(steps, signed)

    def _forget(
        self,
        ids: Sequence[bytes],
        force: bool,  # noqa: FBT001 (handed on)
        seen: Mapping[bytes, Seen],
        signed: Signature | None,
    ) -> list[Answer]:
        freed = partial(transitions.forget, force=force)
        steps = {id: self._step(id, partial(freed, seen=seen.get(id))) for id in ids}
        return self._told(steps, signed)

    def _step(self, id: bytes, change: Change) -> tuple[Record | None, Answer]:
        """Apply it; also what was there before."""
        while True:
            before, now = self._records.get(id), self._clock.now()  # as in `_one`
            record, verdict = change(before, now)
            if record is None or record is before:
                still = self._records.get(id) is before
            else:
                still = self._exchange(before, record)
            if still:
                return before, Answer(verdict, record, now)

    def _told(self, steps: Mapping[bytes, tuple[Record | None, Answer]], signed: Signature | None) -> list[Answer]:
        """The answers; what was changed by hand enters the trail."""
        answers = [answer for _, answer in steps.values()]
        if signed is not None:
            self._trail.add(entries_of(signed, lambda id: steps[id][0], answers))
        return answers

    def _scan(self, wanted: Filter, cursor: bytes | None, limit: int) -> Page:
        now = self._clock.now()
        records = self._records.copy()
        ids = sorted(id for id in records if cursor is None or id > cursor)
        found = [records[id] for id in ids if _matches(records[id], wanted)][: limit + 1]
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None, now)

    def _first(self, wanted: Filter, order: SortOrder, limit: int) -> Page:
        found = (record for record in tuple(self._records.values()) if _matches(record, wanted))
        return Page(heapq.nsmallest(limit, found, key=SORT_KEYS[order]), None, self._clock.now())

    def _audit(self, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
        return self._trail.find(wanted, limit, self._clock.now())

    def _counts(self) -> dict[tuple[str, RecordState], int]:
        return dict(Counter((record.scope, record.state) for record in tuple(self._records.values())))

    def _purge(self, limit: int, signed: Signature | None) -> int:
        now = self._clock.now()
        over = [record for record in tuple(self._records.values()) if transitions.purgeable(record, now)][:limit]
        gone = sum(map(self._delete, over))
        self._trail.purge(now)
        if signed is not None and gone:
            self._trail.add([purge_entry(signed, gone, now)])
        return gone

    def after_fork_in_child(self) -> None:
        """A copy that nobody else sees protects nothing."""
        self._mutex = ForkedStore()
        self._records = ForkedEntries()
        self._standings = {}
        self._marks = {}
        self._sheets = {}


def _settle(settlement: AnySettlement, record: Record | None, now: int) -> tuple[Record | None, Verdict]:
    return transitions.settle(record, settlement, now)


_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _disown() -> None:
    for store in tuple(_stores):
        store.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disown)


def _matches(record: Record, wanted: Filter) -> bool:
    return (
        (not wanted.states or record.state in wanted.states)
        and (wanted.scope is None or record.scope == wanted.scope)
        and (wanted.key is None or record.key == wanted.key)
        and (wanted.updated_before is None or record.updated_at < wanted.updated_before)
    )


def from_url(url: str) -> MemoryStore:
    """`memory://` or `memory://?max_records=100000`. Each call makes a store of its own."""
    from urllib.parse import parse_qs, urlsplit  # here, because most memory stores are made without a URL

    parts = urlsplit(url)
    settings = parse_qs(parts.query, keep_blank_values=True)
    most = settings.pop("max_records", [None])[0]
    if settings or parts.netloc or parts.path.strip("/") or (most is not None and not most.isdecimal()):
        raise ConfigurationError(f"{url!r} is not a memory URL", hint="write memory:// or memory://?max_records=100000")
    return MemoryStore(max_records=None if most is None else int(most))
