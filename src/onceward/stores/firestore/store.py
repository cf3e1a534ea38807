"""FirestoreStore: records as documents, on the server's clock.

A claim is a read and a conditional write, a settlement one conditional write, a replay one read. Nothing is locked, and
nothing waits behind another key: every call goes by itself over one channel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from onceward.errors import StoreUnavailable
from onceward.protocol import transitions
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature
from onceward.protocol.capabilities import HealthFinding
from onceward.protocol.counters import CounterRow, StoredCounts
from onceward.protocol.latest import DedupMark, EntityState, EventDelivery, LatestResult, Retention
from onceward.protocol.ports import Clock, Filter, Page, SortOrder
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, ExpectedRecord, Renewal
from onceward.protocol.runtime import Runtime
from onceward.stores.watchers import Watchers

from . import audit as trail
from . import errors as faults
from .address import FirestoreAddress, changed, from_client, parse
from .cache import FirestoreCache
from .calls import FirestoreCalls
from .counters import FirestoreCounters
from .documents import Records
from .errors import FirestoreRefused
from .joined import FirestoreJoined
from .latest import FirestoreLatest
from .latest_documents import LatestDocuments
from .latest_listing import FirestoreLatestListing
from .layout import Layout
from .maintenance import FirestoreMaintenance
from .table import LARGEST_VALUE, DocumentRequest, FirestoreTable, job_of
from .transport import FirestoreThreadTransport, FirestoreTransport

T = TypeVar("T")


class Open(NamedTuple):
    """What there is while the store is open."""

    runtime: Runtime
    wire: FirestoreTransport
    calls: FirestoreCalls
    table: FirestoreTable
    upkeep: FirestoreMaintenance
    latest: FirestoreLatest
    counts: FirestoreCounters


class FirestoreStore(Watchers):
    """A collection: `where` is a URL, or your own `Client` or `AsyncClient` together with `collection`.

    `layout` says how the documents look; `marks` and `states` name the collections of events and of what they left.
    `clock` is for tests: else the server's own time counts.
    """

    inline = False
    largest = LARGEST_VALUE

    def __init__(
        self,
        where: Any,
        collection: str = "",
        *,
        layout: Layout | None = None,
        marks: str = "",
        states: str = "",
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        place = parse(where) if isinstance(where, str) else where
        if not isinstance(place, FirestoreAddress):
            place = from_client(where, collection)
        changes = {"layout": layout, "marks": marks, "states": states}
        self._place = changed(place, {name: value for name, value in changes.items() if value})
        self._clock = clock
        self._recall = FirestoreCache()
        self._records = Records(self._place.layout)
        self.name = self._place.name
        self._open: Open | None = None
        self._opening = threading.Lock()

    @property
    def clock(self) -> Clock | None:
        """What tells the time here instead of the server, for those who answer in the store's place."""
        return self._clock

    def clone(self) -> FirestoreStore:
        other = FirestoreStore(self._place, clock=self._clock)
        other._recall = self._recall  # the keeper renews what we have claimed
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Only the settings travel: the other process opens channels of its own."""
        return _with_settings, (self._place, self._clock)

    async def open(self, runtime: Runtime) -> None:
        """Nothing is asked yet: whether the database is there, the first call tells."""
        with self._opening:
            former = self._open
            if former is not None and former.runtime is runtime:
                return
            wire = _wire(self._place, runtime)
            calls = FirestoreCalls(self._place, wire, self._recall)
            self._open = Open(
                runtime,
                wire,
                calls,
                FirestoreTable(calls, self._records, runtime, self._now),
                FirestoreMaintenance(calls, self._records, self._now),
                FirestoreLatest(LatestDocuments(calls, self._place.layout), runtime, self._now),
                FirestoreCounters(calls, self._now),
            )
        if former is not None:
            await former.wire.close()

    async def close(self) -> None:
        former, self._open = self._open, None
        if former is not None:
            await former.wire.close()

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return await self._apply(requests, timeout)

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return await self._apply(renewals, timeout)

    async def settle(
        self, settlements: Sequence[AnySettlement], *, timeout: float, signed: AuditSignature | None = None
    ) -> list[Answer]:
        answers = await self._apply(settlements, timeout, signed)
        self.wake(one.id for one in settlements)
        return answers

    async def _apply(
        self, requests: Sequence[AnyRequest], timeout: float, signed: AuditSignature | None = None
    ) -> list[Answer]:
        return await self._opened().table.apply([job_of(one) for one in requests], _until(timeout), signed)

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._opened().table.read(ids, _until(timeout))

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
        jobs = [DocumentRequest(id, partial(transitions.forget, force=force, seen=sights.get(id))) for id in ids]
        answers = await self._opened().table.apply(jobs, _until(timeout), signed)
        self.wake(ids)
        return answers

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        return await self._asked(self._opened().upkeep.scan(wanted, cursor, limit, _until(timeout)))

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        return await self._asked(self._opened().upkeep.first(wanted, order, limit, _until(timeout)))

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        return await self._asked(self._opened().upkeep.counts(_until(timeout)))

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        return await self._asked(self._opened().upkeep.purge(limit, _until(timeout), signed))

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return await self._asked(trail.find(self._opened().calls, wanted, limit, self._now(), _until(timeout)))

    # ── newest wins ─────────────────────────────────────────────────────────────────────────────────────────────

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        return await self._asked(self._opened().latest.keep(deliveries, keep, _until(timeout)))

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        return await self._asked(self._opened().latest.read(ids, _until(timeout)))

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        return await self._asked(self._opened().latest.expire(limit, _until(timeout)))

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        return await self._asked(self._shown().entities(scope, cursor, limit, _until(timeout)))

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        return await self._asked(self._shown().marks(ids, _until(timeout)))

    def _shown(self) -> FirestoreLatestListing:
        return FirestoreLatestListing(self._opened().latest.states, self._now)

    # ── counters ────────────────────────────────────────────────────────────────────────────────────────────────

    async def save_counts(self, sheets: Sequence[CounterRow], *, timeout: float) -> int:
        return await self._asked(self._opened().counts.keep(sheets, _until(timeout)))

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        return await self._asked(self._opened().counts.read_counts(since, _until(timeout)))

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        return await self._asked(self._opened().counts.expire(limit, _until(timeout)))

    # ── the caller's own transaction ────────────────────────────────────────────────────────────────────────────

    def join(self, connection: Any, runtime: Runtime) -> FirestoreJoined:
        """The store within a `Transaction` or `AsyncTransaction` of the caller's, on the same database."""
        opened = self._opened()
        return FirestoreJoined(connection, runtime, self._records, opened.latest.states, self._now)

    async def examine(self, *, timeout: float) -> list[HealthFinding]:
        """For `onceward doctor`."""
        place = self._place
        await self._asked(self._opened().calls.get([(place.collection, "clock")], _until(timeout)))
        server = f"the emulator at {place.emulator}: for tests" if place.emulator else f"{place.root} at Google"
        policy = f"{place.layout.expiry} in {place.collection}, {place.marks_in} and {place.states_in}"
        return [
            HealthFinding("server", well=True, detail=server),
            HealthFinding("expiry", well=True, detail=f"by a policy on {policy}, if you made one; else by purge"),
        ]

    # ── while it is open ────────────────────────────────────────────────────────────────────────────────────────

    def _now(self) -> int | None:
        return None if self._clock is None else self._clock.now()

    def _opened(self) -> Open:
        if self._open is None:
            raise StoreUnavailable(f"{self.name} is not open", hint="open the store first, and close it last")
        return self._open

    async def _asked(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except FirestoreRefused as error:
            raise faults.explain(error, self.name) from error


def _wire(place: FirestoreAddress, runtime: Runtime) -> FirestoreTransport:
    if runtime.supports_cancellation:  # calls are tasks of an event loop
        from .async_transport import FirestoreAsyncTransport

        return FirestoreAsyncTransport(place)
    return FirestoreThreadTransport(place)


def _until(timeout: float) -> float:
    return time.monotonic() + timeout


def _with_settings(place: FirestoreAddress, clock: Clock | None) -> FirestoreStore:
    return FirestoreStore(place, clock=clock)
