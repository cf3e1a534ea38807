"""MemoryStore: the state table applied to a dict. For tests, and for work that only one process does."""

from __future__ import annotations

import heapq
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature, audit_entries, purge_entry
from onceward.protocol.capabilities import BuiltInCapabilities, Lookup
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.ports import SORT_KEYS, Clock, Filter, Page, SortOrder
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import (
    Answer,
    AnyRequest,
    AnySettlement,
    ClaimRequest,
    ExpectedRecord,
    Renewal,
    Verdict,
)
from onceward.protocol.runtime import Runtime
from onceward.protocol.secrets import url_without_secrets
from onceward.stores.clock import SteadyClock
from onceward.stores.mutex import Mutex
from onceward.stores.watchers import Watchers

from .audit import MemoryAudit
from .counters import MemoryCounters
from .erasure import MemoryErasure
from .forked import ForkedEntries, ForkedStore
from .history import MemoryHistory
from .latest import MemoryLatest
from .listing import MemoryListing

VERBS, CLAIM, SETTLE = transitions.VERBS, transitions.claim, transitions.settle
replays = transitions.replays
Change = Callable[[Record | None, int], tuple[Record | None, Verdict]]


class MemoryStore(
    MemoryListing, MemoryErasure, MemoryHistory, MemoryLatest, MemoryCounters, Watchers, BuiltInCapabilities
):
    """Keeps records in a dict: O(1) per call at any size (O(log n) for expiry). `max_records` bounds it.

    A full store raises StoreFull and claims nothing: only records that no longer protect their key are evicted. `clock`
    is for tests, such as a `FakeClock`.

    Records are immutable. A change replaces the stored record if it is still the one that was read. Only this
    compare-and-set is locked; it makes no calls, so that no signal handler can run in between. Operations of more than
    one step (expiry, the audit trail) run in the mutex.
    """

    inline = True

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
        """The store's clock, for wrappers that answer in place of the store."""
        return self._clock

    def clone(self) -> MemoryStore:
        return self

    async def open(self, runtime: Runtime) -> None: ...

    async def close(self) -> None: ...

    # ── capabilities ──

    @property
    def lookup(self) -> Lookup:
        return self.lookup_completed

    # ── the verbs ──

    def lookup_completed(self, id: bytes, fingerprint: bytes, /) -> Record | None:
        record = self._records.get(id)
        if record is not None and replays(record, fingerprint, self._now()):
            return record
        return None

    def _answer(self, request: AnyRequest) -> Answer:
        """Apply the state table to one record."""
        verb, id = VERBS[type(request)], request.id
        while True:
            # The record before the time: if the record is unchanged below, it was stored at `now`.
            before, now = self._records.get(id), self._now()
            if verb is CLAIM:
                now = self._sweep_on_claim(now)
            record, verdict = verb(before, request, now)
            if self._records.get(id) is before if record is before else self._compare_and_set(before, record):
                break
        if verb is SETTLE and self._waiting:  # not after a claim: waiting callers claim, and would wake each other
            self.wake((id,))
        return Answer(verdict, record, now)

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return list(map(self._answer, requests))

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return list(map(self._answer, renewals))

    async def settle(
        self,
        settlements: Sequence[AnySettlement],
        *,
        timeout: float,
        signed: AuditSignature | None = None,
    ) -> list[Answer]:
        if signed is None:
            return list(map(self._answer, settlements))
        answers = self._mutex.run(self._settle_signed, signed, settlements)
        self.wake(one.id for one in settlements)
        return answers

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        get = self._records.get
        while True:
            found, now = list(map(get, ids)), self._now()  # in this order: see `_answer`
            if all(get(id) is record for id, record in zip(ids, found, strict=True)):
                break
        return [Answer(Verdict.ABSENT if record is None else Verdict.OK, record, now) for record in found]

    async def forget(
        self,
        ids: Sequence[bytes],
        *,
        force: bool,
        timeout: float,
        seen: Mapping[bytes, ExpectedRecord] | None = None,
        signed: AuditSignature | None = None,
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

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        return self._mutex.run(self._purge, limit, signed)

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return self._mutex.run(self._audit, wanted, limit)

    # ── called with the mutex held ──

    def _settle_signed(self, signed: AuditSignature, settlements: Sequence[AnySettlement]) -> list[Answer]:
        steps = {one.id: self._step(one.id, partial(_settle, one)) for one in settlements}
        return self._with_audit(steps, signed)

    def _forget(
        self,
        ids: Sequence[bytes],
        force: bool,  # noqa: FBT001 (handed on)
        seen: Mapping[bytes, ExpectedRecord],
        signed: AuditSignature | None,
    ) -> list[Answer]:
        freed = partial(transitions.forget, force=force)
        steps = {id: self._step(id, partial(freed, seen=seen.get(id))) for id in ids}
        for id, (before, answer) in steps.items():
            if answer.record is not before:
                self._history.pop(id, None)
        return self._with_audit(steps, signed)

    def _step(self, id: bytes, change: Change) -> tuple[Record | None, Answer]:
        """Apply the change. Return the record as it was before, and the answer."""
        while True:
            before, now = self._records.get(id), self._clock.now()  # in this order: see `_answer`
            record, verdict = change(before, now)
            if record is None or record is before:
                unchanged = self._records.get(id) is before
            else:
                unchanged = self._compare_and_set(before, record)
            if unchanged:
                return before, Answer(verdict, record, now)

    def _with_audit(
        self, steps: Mapping[bytes, tuple[Record | None, Answer]], signed: AuditSignature | None
    ) -> list[Answer]:
        """Return the answers. Signed changes are added to the audit trail."""
        answers = [answer for _, answer in steps.values()]
        if signed is not None:
            self._trail.add(audit_entries(signed, lambda id: steps[id][0], answers))
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

    def _purge(self, limit: int, signed: AuditSignature | None) -> int:
        now = self._clock.now()
        expired = [record for record in tuple(self._records.values()) if transitions.purgeable(record, now)][:limit]
        deleted = sum(map(self._delete, expired))
        self._trail.purge(now)
        if signed is not None and deleted:
            self._trail.add([purge_entry(signed, deleted, now)])
        return deleted

    def after_fork_in_child(self) -> None:
        """Disable the store: a private copy of the records would protect nothing."""
        self._mutex = ForkedStore()
        self._records = ForkedEntries()
        self._entity_states = {}
        self._marks = {}
        self._counter_rows = {}
        self._history = {}


def _settle(settlement: AnySettlement, record: Record | None, now: int) -> tuple[Record | None, Verdict]:
    return transitions.settle(record, settlement, now)


_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _disable_in_child() -> None:
    for store in tuple(_stores):
        store.after_fork_in_child()


call_in_forked_child(_disable_in_child)


def _matches(record: Record, wanted: Filter) -> bool:
    return (
        (not wanted.states or record.state in wanted.states)
        and (wanted.scope is None or record.scope == wanted.scope)
        and (wanted.key is None or record.key == wanted.key)
        and (wanted.updated_before is None or record.updated_at < wanted.updated_before)
        and (wanted.prefix is None or record.key.startswith(wanted.prefix))
    )


def from_url(url: str) -> MemoryStore:
    """Return a new store for a `url`: `memory://`, or `memory://?max_records=100000`.

    Raise `ConfigurationError` if the URL has other parts: a memory store has no name.
    """
    from urllib.parse import parse_qs, urlsplit  # imported here: most memory stores are created without a URL

    parts = urlsplit(url)
    settings = parse_qs(parts.query, keep_blank_values=True)
    max_records = settings.pop("max_records", [None])[0]
    is_number = max_records is None or (max_records.isdecimal() and len(max_records) < 20)  # noqa: PLR2004 (as an integer of 64 bits)
    if settings or parts.netloc or parts.path.strip("/") or not is_number:
        raise ConfigurationError(
            f"{url_without_secrets(url)!r} is not a memory URL", hint="write memory:// or memory://?max_records=100000"
        )
    return MemoryStore(max_records=None if max_records is None else int(max_records))
