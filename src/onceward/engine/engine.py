"""The engine: what every flow needs. Store, runtime, heartbeat, event bus."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from onceward.errors import Stopping, StoreError, StoreNotSetUp
from onceward.keys.key import Key
from onceward.keys.small import SMALL_BYTES, is_small
from onceward.protocol.capabilities import JoinedStore, Lookup
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.policy import SECOND
from onceward.protocol.ports import Store
from onceward.protocol.record import CompletedRecord, Record
from onceward.protocol.requests import AnySettlement, Renewal
from onceward.protocol.runtime import Runtime
from onceward.results.codec import Codec, Encoded, unpacked_size

from .events import Bus, Emit, Event
from .lease import Lease
from .open_transaction import OpenTransactions
from .rollout import Rollout

T = TypeVar("T")

YIELD_EVERY = 32
"""How many small steps run before yielding to other tasks: together about a millisecond."""


WANT_ALL: Callable[[str], bool] = bool
"""A `wants` that is true for every event, because no event name is empty. A builtin, because each event calls it."""


class HeartbeatPort(Protocol):
    """Renews leases in the background."""

    def take(self, hold: Lease, since: float) -> None: ...
    def drop(self, hold: Any) -> None: ...
    def settle_later(self, hold: Lease, settlement: AnySettlement) -> None: ...
    def reconcile(self, hold: Any, id: bytes, lease: int) -> None: ...
    def due(self) -> Sequence[Lease]: ...
    def shortest_lease(self) -> float | None: ...


class Owner(Protocol):
    """The owner that claims of this process are made for."""

    name: str


class Finish(Protocol):
    """Runs an awaitable to its end even if the caller is cancelled. A store that never waits needs no shield.

    It returns the result and the cancellation, or None. If the work failed and the caller was cancelled, it raises the
    cancellation, with the failure as its cause.
    """

    def __call__(
        self, work: Awaitable[T], on_cancel: Callable[[], None] | None = None
    ) -> Awaitable[tuple[T, BaseException | None]]: ...


class Engine:
    """Shared by all calls of one client. It holds no state of a single call."""

    def __init__(self, store: Store, runtime: Runtime, heartbeat: HeartbeatPort, bus: Bus, owner: Owner) -> None:
        self.runtime = runtime
        self.bus = bus
        self.owner = owner
        self.stopping = False
        self.closed = False
        self.claims_in_flight: set[int] = set()
        """Calls that claim or release keys now. `close` waits for them."""
        self.open_transactions = OpenTransactions()
        self.rollout = Rollout()
        # Cached here for speed: every call uses them.
        self.wants: Callable[[str], bool] = bus.wants
        self.history = bus.history
        self.nonce: Callable[[], bytes] = runtime.nonce
        self.emit_wanted: Emit = self._emit_event
        self.connect(store, heartbeat)
        self.count_by_scope()
        _engines.add(self)

    def connect(self, store: Store, heartbeat: HeartbeatPort) -> None:
        """Use this store, which the next call opens, and the heartbeat that renews leases in it."""
        runtime = self.runtime
        self.store = store
        self.heartbeat = heartbeat
        # A lookup may block: never on an event loop, unless the store is inline.
        self.lookup: Lookup | None = None if runtime.supports_cancellation and not store.inline else store.lookup
        self.max_result_bytes = store.max_result_bytes
        self.batch_splits = store.batch_splits if runtime.supports_cancellation else 1
        self.shields = runtime.supports_cancellation and not store.inline
        """Whether a call to the store can be cancelled while it waits, so that it needs `shield`."""
        self.shield: Finish = _finish_inline if store.inline else runtime.shield
        self.opened = False
        self.prepared = False
        """Whether a call may claim immediately: the store is open, and no declared operation remains to be compared."""

    def count_by_scope(self) -> None:
        """Count events by scope from now on, if the bus has totals. Clients without counters pay nothing for it."""
        if self.bus.totals is not None:
            self.wants, self.emit_wanted = WANT_ALL, self.bus.totals.emitter(self.bus, self._emit_event)

    def is_ready(self) -> bool:
        """Check that this is the right runtime and that claiming is allowed. If False, await `ready` first."""
        self.runtime.check()
        if self.stopping:
            self.refuse_to_claim()
        return self.prepared

    def refuse_to_claim(self) -> NoReturn:
        """Raise because this client stops, or is closed."""
        if self.closed:
            raise Stopping("this client was closed", hint="create a new one, or call it before its block ends")
        raise Stopping("this process has stopped claiming", hint="deliver it to another process")

    async def ready(self) -> None:
        """Check like `is_ready`, open the store if it is not open, and compare new declarations."""
        if self.is_ready():
            return
        if not self.opened:
            await self._open_store()
            self.opened = True
        self.prepared = True  # set first: the next call compares operations that are declared in the meantime
        await self.prepare()

    async def prepare(self) -> None:
        """Prepare for the next claim. Called after the store was opened, or after an operation was declared."""

    async def _open_store(self) -> None:
        try:
            await self.store.open(self.runtime)
        except StoreError as error:
            if self.closed:  # it was closed while this call opened the store: that is not an outage
                self.refuse_to_claim()
            if isinstance(error, StoreNotSetUp):
                self.report("not_set_up", str(error))
            raise
        if self.closed:
            await self.store.close()
            self.refuse_to_claim()

    async def encode(self, codec: Codec, value: Any, id: bytes, cycle: int = 0) -> Encoded:
        """Encode the result. A large one is encoded in a worker thread, so that it does not block the event loop."""
        if is_small(value):
            return codec.encode(value, id, cycle)
        return await self.runtime.compute(codec.encode, value, id, cycle)

    async def decode(self, codec: Codec, data: bytes, id: bytes, cycle: int = 0) -> Any:
        """Decode a stored result."""
        if unpacked_size(data) <= SMALL_BYTES:
            return codec.decode(data, id, cycle)
        return await self.runtime.compute(codec.decode, data, id, cycle)

    def emit(
        self, name: str, key: Key, record: Record | CompletedRecord | None = None, *, reason: str = "", error: str = ""
    ) -> None:
        """Count the event, and emit it if there is a listener."""
        if self.wants(name):
            self.emit_wanted(name, key, record, reason=reason, error=error)

    def _emit_event(
        self, name: str, key: Key, record: Record | CompletedRecord | None = None, *, reason: str = "", error: str = ""
    ) -> None:
        """Emit an event. Callers check `wants` first, so that no event is built without a listener."""
        self.bus.emit(
            Event(
                name=name,
                key=key.text,
                scope=key.scope.text,
                reason=reason,
                attempt=record.attempt if record else 0,
                token=record.token if record else 0,
                state=record.state.value if record else "",
                owner=record.owner if record else "",
                error=error,
            )
        )

    async def renew_due(self, joined: JoinedStore, *, but: Lease | None = None) -> None:
        """Write the due renewals in the caller's transaction, which blocks the heartbeat. Never begin a transaction."""
        due = [hold for hold in self.heartbeat.due() if hold is not but] if joined.exclusive else []
        if not due or not joined.is_open():
            return
        renewals = [Renewal(hold.record.id, hold.record.token, hold.nonce, hold.lease) for hold in due]
        try:
            await joined.renew(renewals, timeout=min(hold.lease for hold in due) / SECOND / 6)
        except StoreError:  # the heartbeat tries again anyway, and reports it
            if not joined.is_open():
                raise

    def warn_slow_transaction(self, took: float, shortest: float) -> None:
        """Warn that a long write transaction blocked the heartbeat: leases of this process may have expired."""
        self.report(
            "slow_transaction",
            f"a joined transaction took {took:.2f} s; the shortest lease held here is {shortest:.2f} s",
        )

    def report(self, name: str, reason: str) -> None:
        """Emit an event about the store or the client, not about a key."""
        if self.bus.wants(name):
            self.bus.emit(Event(name=name, key="", scope=self.store.name, reason=reason))


async def _finish_inline(work: Awaitable[T], on_cancel: object = None) -> tuple[T, None]:  # noqa: ARG001 (as `Runtime.shield`)
    """Await work that never suspends: it cannot be cancelled."""
    return await work, None


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget_parents_claims() -> None:
    """Forget the calls of the parent's threads: in a forked child, they never end."""
    for engine in tuple(_engines):
        engine.claims_in_flight.clear()


call_in_forked_child(_forget_parents_claims)
