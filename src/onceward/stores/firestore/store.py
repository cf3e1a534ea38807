"""FirestoreStore: records as documents, on the server's clock.

A claim is a read and a conditional write, a settlement is one conditional write, a replay is one read. Nothing is
locked, and no key waits for another: calls run independently over one channel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from onceward.protocol import transitions
from onceward.protocol.audit import AuditSignature
from onceward.protocol.capabilities import (
    BuiltInCapabilities,
    Health,
    HealthFinding,
    Transactions,
)
from onceward.protocol.ports import Clock
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, ExpectedRecord, Renewal
from onceward.protocol.runtime import Runtime
from onceward.stores.watchers import Watchers

from .address import FirestoreAddress, from_client, parse
from .cache import FirestoreCache
from .calls import FirestoreCalls
from .counters import FirestoreCounters
from .documents import Records
from .erasure import FirestoreErasure
from .history import FirestoreHistory
from .joined import FirestoreJoined
from .latest import FirestoreLatest
from .latest_documents import LatestDocuments
from .layout import Layout
from .maintenance import FirestoreMaintenance
from .opened import OpenState
from .table import MAX_VALUE_BYTES, DocumentRequest, FirestoreTable, document_request
from .transport import FirestoreThreadTransport, FirestoreTransport


class FirestoreStore(
    FirestoreLatest,
    FirestoreCounters,
    FirestoreHistory,
    FirestoreErasure,
    FirestoreMaintenance,
    Watchers,
    BuiltInCapabilities,
):
    """Stores records in a collection: `where` is a URL, or your own `Client` or `AsyncClient` with `collection`.

    `layout` names the document fields. `marks` and `states` name the collections of processed events and of entity
    states. `clock` is for tests; by default the server's clock is used.
    """

    inline = False

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
        address = parse(where) if isinstance(where, str) else where
        if not isinstance(address, FirestoreAddress):
            address = from_client(where, collection)
        changes = {"layout": layout, "marks": marks, "states": states}
        self._address = replace(address, **{name: value for name, value in changes.items() if value})
        self._clock = clock
        self._cache = FirestoreCache()
        self._records = Records(self._address.layout)
        self.name = self._address.name
        self._open: OpenState | None = None
        self._opening = threading.Lock()

    @property
    def clock(self) -> Clock | None:
        """The test clock that replaces the server's, for wrappers that answer instead of the store."""
        return self._clock

    def clone(self) -> FirestoreStore:
        other = FirestoreStore(self._address, clock=self._clock)
        other._cache = self._cache  # the heartbeat's clone renews the claims of this store
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the settings: the other process opens its own channels."""
        return _with_settings, (self._address, self._clock)

    async def open(self, runtime: Runtime) -> None:
        """Prepare the channel. No call is made yet: a missing database is reported by the first call."""
        with self._opening:
            previous = self._open
            if previous is not None and previous.runtime is runtime:
                return
            transport = _transport_for(self._address, runtime)
            calls = FirestoreCalls(self._address, transport, self._cache, self._now)
            table = FirestoreTable(calls, self._records, runtime)
            self._open = OpenState(runtime, transport, calls, table, LatestDocuments(calls, self._address.layout))
        if previous is not None:
            await previous.transport.close()

    async def close(self) -> None:
        previous, self._open = self._open, None
        if previous is not None:
            await previous.transport.close()

    # ── capabilities ──

    @property
    def transactions(self) -> Transactions:
        return self

    @property
    def health(self) -> Health:
        return self

    @property
    def max_result_bytes(self) -> int:
        return MAX_VALUE_BYTES

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
        return await self._opened.table.apply([document_request(one) for one in requests], _deadline(timeout), signed)

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return await self._opened.table.read(ids, _deadline(timeout))

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
        jobs = [DocumentRequest(id, partial(transitions.forget, force=force, seen=expected.get(id))) for id in ids]
        answers = await self._opened.table.apply(jobs, _deadline(timeout), signed)
        self.wake(ids)
        return answers

    # ── the caller's own transaction ────────────────────────────────────────────────────────────────────────────

    def join(self, connection: Any, runtime: Runtime) -> FirestoreJoined:
        """Return the store inside the caller's `Transaction` or `AsyncTransaction` on the same database."""
        return FirestoreJoined(connection, runtime, self._records, self._states)

    async def open_for_inspection(self, runtime: Runtime) -> None:
        await self.open(runtime)

    async def examine(self, *, timeout: float) -> list[HealthFinding]:
        """Return the findings for `onceward doctor`."""
        address = self._address
        with self._call(timeout) as deadline:
            await self._calls.get([(address.collection, "clock")], deadline)
        server = f"the emulator at {address.emulator}: for tests" if address.emulator else f"{address.root} at Google"
        policy = f"{address.layout.expiry} in {address.collection}, {address.marks_in} and {address.states_in}"
        return [
            HealthFinding("server", ok=True, detail=server),
            HealthFinding(
                "expiry", ok=True, detail=f"by a TTL policy on {policy}, if you created one; otherwise by purge"
            ),
        ]

    # ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _now(self) -> int | None:
        return None if self._clock is None else self._clock.now()


def _transport_for(address: FirestoreAddress, runtime: Runtime) -> FirestoreTransport:
    if runtime.supports_cancellation:  # calls run as tasks of an event loop
        from .async_transport import FirestoreAsyncTransport

        return FirestoreAsyncTransport(address)
    return FirestoreThreadTransport(address)


def _deadline(timeout: float) -> float:
    return time.monotonic() + timeout


def _with_settings(address: FirestoreAddress, clock: Clock | None) -> FirestoreStore:
    return FirestoreStore(address, clock=clock)
