"""The heartbeat: one background thread per client that renews every lease of this process, in batches.

It has its own connection and uses no event loop: a blocked loop or a busy pool cannot delay it. A failed renewal is
retried until the store answers. `overdue` means no answer by the end of the lease on our own clock; renewals continue
and may succeed. `lost` means that the store reported another owner; only this ends the work.
"""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol
from weakref import ref

from onceward.engine.events import Bus, Event
from onceward.engine.lease import Lease
from onceward.errors import Stopping
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.policy import RENEWALS_PER_LEASE, SECOND
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import AnySettlement, Renewal, Verdict

from .native_thread import GreenletProofThread, PlainThread, Wakeup, native_thread
from .orphans import OrphanReconciler
from .threads import ThreadRuntime, run

BATCH = 256
IDLE_INTERVAL = 60.0  # seconds between checks while no lease is held
FIRST_RETRY, MAX_RETRY = 0.02, 1.0  # seconds between tries of a delayed settlement
QUIET_WAIT = 1.0  # seconds that `drain` waits before it reports what is still held
A_MICROSECOND, TO_RENEWAL = 1 / SECOND, 1 / RENEWALS_PER_LEASE  # used for every claim: multiplying is faster
SETTLE_TIMEOUT = 0.1  # seconds for one try of a delayed settlement: lease renewals wait for it


class HasNonce(Protocol):
    """A claim, identified by its nonce."""

    @property
    def nonce(self) -> bytes: ...


def interval(hold: Lease) -> float:
    """Return the seconds between two renewals."""
    return hold.lease / SECOND / RENEWALS_PER_LEASE if hold.heartbeat is None else hold.heartbeat / SECOND


class DelayedSettlement:
    """A settlement that must wait until the caller's transaction has ended."""

    __slots__ = ("hold", "pause", "settlement", "try_at")

    def __init__(self, hold: Lease, settlement: AnySettlement, now: float) -> None:
        self.hold = hold
        self.settlement = settlement
        self.pause = FIRST_RETRY
        self.try_at = now + FIRST_RETRY


class Heartbeat:
    """Renews held leases. It starts its thread with the first lease and joins it on close.

    It refers to leases weakly. If no live object refers to an attempt, nothing can settle it: its lease expires.
    """

    def __init__(self, store: Store, bus: Bus, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._bus = bus
        self.monotonic = monotonic
        self._reset()
        _heartbeats.add(self)

    def _reset(self) -> None:
        self._holds: dict[bytes, ref[Lease]] = {}
        self._delayed: dict[bytes, DelayedSettlement] = {}
        self._reconciler = OrphanReconciler(self.monotonic)
        self._own_store: Store | None = None
        self._thread: PlainThread | GreenletProofThread | None = None
        self._running = False
        self._starting = threading.RLock()  # reentrant: a signal handler may claim while its thread starts ours
        self._wakeup = Wakeup()
        self._next_check = 0.0
        self._closing = False

    def take(self, hold: Lease, since: float) -> None:
        """Renew this lease from now on. `since` is our own clock, before the claim was sent.

        Raise if the thread cannot be started.
        """
        seconds = hold.lease * A_MICROSECOND
        hold.ends = since + seconds
        every = seconds * TO_RENEWAL if hold.heartbeat is None else hold.heartbeat * A_MICROSECOND
        hold.renew_at = renew_at = since + every
        self._holds[hold.nonce] = ref(hold)
        if not self._running:
            try:
                self._start()
            except BaseException:
                self.drop(hold)
                raise
        if renew_at < self._next_check:
            self._wakeup.wake()

    def drop(self, hold: HasNonce) -> None:
        """Stop renewing it. The nonce identifies it, even if an interrupt came before its record was set."""
        self._holds.pop(hold.nonce, None)

    def settle_later(self, hold: Lease, settlement: AnySettlement) -> None:
        """Settle it once the owner's open transaction no longer blocks the store. Otherwise its lease expires."""
        self._delayed[hold.nonce] = DelayedSettlement(hold, settlement, self.monotonic())
        self._wakeup.wake()

    def reconcile(self, hold: HasNonce, id: bytes, lease: int) -> None:
        """Release this claim if it was granted: its answer never came, and its caller has gone."""
        self._reconciler.add(id, hold.nonce, lease * A_MICROSECOND)
        with suppress(RuntimeError, Stopping):  # no thread, or closed: then its lease expires
            if not self._running:
                self._start()
        self._wakeup.wake()

    def drain(
        self,
        timeout: float,
        *,
        own: Collection[Lease] = (),
        callers: Collection[Lease] = (),
        has_claims_in_flight: Callable[[], bool] = lambda: False,
        engine: object = None,
    ) -> bool:
        """Wait until no claim is in flight and no lease is held. Then report leases that are still held: they expire.

        `own` are locks of the caller, which cannot release them while it waits here. `callers` are the claims whose
        work makes this call: that work cannot end while it waits here. If one is still held, return False: the store
        must stay open for it. With `engine`, only leases of that engine count: others share this heartbeat.
        """
        began = time.monotonic()
        reported = timeout <= QUIET_WAIT
        ignored = [*own, *callers]

        def held() -> list[Lease]:
            return [one for one in self.held() if engine is None or getattr(one, "engine", None) is engine]

        while has_claims_in_flight() or self._delayed or any(hold not in ignored for hold in held()):
            waited = time.monotonic() - began
            if waited >= timeout:
                break
            if waited >= QUIET_WAIT and not reported:
                reported = True
                self._emit_still_held(held(), f"close waits for it, for at most {timeout - waited:.0f} s")
            time.sleep(0.01)
        running = [hold for hold in held() if hold in callers]
        for hold in running:
            self._emit("still_held", hold, reason="its own work is calling close: the store stays open for it")
        if not running:
            self._emit_still_held(held(), "closed anyway: the key is free when its lease expires")
        return not running

    def _emit_still_held(self, holds: Collection[Lease], reason: str) -> None:
        for hold in holds:
            self._emit("still_held", hold, reason=reason)

    def held(self) -> list[Lease]:
        """Return the leases that the heartbeat renews. Other threads may add and drop leases meanwhile."""
        found = []
        for nonce, reference in self._holds.copy().items():
            hold = reference()
            if hold is not None:
                found.append(hold)
            else:  # its attempt was dropped without an end: it is not renewed
                self._holds.pop(nonce, None)
        return found

    def delayed(self) -> list[DelayedSettlement]:
        """Return the settlements that are waiting for a transaction to end."""
        return list(self._delayed.values())

    def shortest_lease(self) -> float | None:
        """Return the shortest lease in seconds; None if no lease is held."""
        return min((hold.lease for hold in self.held()), default=0) / SECOND or None

    def due(self) -> list[Lease]:
        """Return the leases whose renewal is due now (also for a transaction that blocks the heartbeat)."""
        now = self.monotonic()
        return [hold for hold in self.held() if hold.renew_at <= now]

    def close(self) -> None:
        """Stop renewing and join the thread, which first releases orphaned claims. Leases that are held expire."""
        with self._starting:
            self._closing = True
        self._wakeup.wake()
        thread = self._thread
        if thread is not None and not thread.is_current():
            thread.join(timeout=10)
        self._thread = None

    def _start(self) -> None:
        with self._starting:
            if self._running:
                return
            if self._closing:
                raise Stopping("this client was closed", hint="create a new one")
            thread = native_thread(self._run, "onceward-heartbeat")
            self._running = True
            try:
                thread.start()
            except BaseException:
                self._running = False
                raise
            self._thread = thread

    def _run(self) -> None:
        try:
            while not self._closing:
                self._plan_next_check()
                self._wakeup.wait(max(0.0, self._next_check - self.monotonic()))
                if not self._closing:
                    self._run_pass()
        finally:
            self._running = False
        for record in self._reconciler.release_all(self._connect):
            self._emit_orphan_released(record)
        if self._own_store is not None and self._own_store is not self._store:
            run(self._own_store.close())

    def _run_pass(self) -> None:
        """Run one pass. No exception may end the thread: every other lease depends on it."""
        try:
            self.tick()
        except BaseException as error:  # noqa: BLE001 (any error of a store or listener, even SystemExit)
            left = self.due()
            for hold in left:
                hold.renew_at = self.monotonic() + interval(hold) / RENEWALS_PER_LEASE  # soon, but not in a busy loop
            with suppress(BaseException):
                for hold in left:
                    self._emit("renewal_failed", hold, repr(error))

    def _plan_next_check(self) -> None:
        """Compute the time of the next pass: at least once every interval.

        `take` notifies the thread only if its lease is due before that time.
        """
        self._next_check = math.inf  # a lease that is added meanwhile must notify
        now = self.monotonic()
        holds = self.held()
        shortest = min(map(interval, holds), default=IDLE_INTERVAL)
        self._next_check = min(
            [
                now + shortest,
                self._reconciler.next_check(),
                *(hold.renew_at for hold in holds),
                *(delayed.try_at for delayed in self.delayed()),
            ]
        )

    def tick(self) -> None:
        """Renew all leases that are due. This is one pass of the thread; tests call it with a fake clock."""
        due = self.due()
        for start in range(0, len(due), BATCH):
            self._renew(due[start : start + BATCH])
        for delayed in self.delayed():
            self._settle_delayed(delayed)
        for record in self._reconciler.release_due(self._connect):
            self._emit_orphan_released(record)

    def _settle_delayed(self, delayed: DelayedSettlement) -> None:
        now, hold = self.monotonic(), delayed.hold
        if now < delayed.try_at:
            return
        verdict = None
        if now < hold.ends:
            with suppress(Exception):  # it is tried again; in the end the lease expires
                verdict = run(self._connect().settle([delayed.settlement], timeout=SETTLE_TIMEOUT))[0].verdict
            if verdict is None or verdict is Verdict.RUNNING:
                delayed.pause = min(delayed.pause * 2, MAX_RETRY)
                delayed.try_at = self.monotonic() + delayed.pause
                return
        self._delayed.pop(hold.nonce, None)
        if verdict is Verdict.OK:
            error_type = getattr(delayed.settlement, "error_type", "")
            self._emit("failed", hold, error_type)
            if self._bus.history is not None:
                self._bus.history.failed_later(hold.record, error_type)

    def _renew(self, due: list[Lease]) -> None:
        asked_at = self.monotonic()
        timeout = min(hold.lease for hold in due) / SECOND / 6
        try:
            renewals = [Renewal(one.record.id, one.record.token, one.nonce, one.lease) for one in due]
            answered = list(zip(due, renewals, run(self._connect().renew(renewals, timeout=timeout)), strict=True))
        except Exception as error:  # noqa: BLE001 (after any error, the renewal must be repeated)
            for hold in due:
                self._not_renewed(hold, repr(error))
            return
        for hold, renewal, answer in answered:
            if (hold.record.token, hold.nonce) != (renewal.token, renewal.nonce):  # claimed again meanwhile
                continue
            renewed = answer.verdict is Verdict.OK
            if renewed or _completed_by(hold, answer.record):
                hold.renew_at = asked_at + interval(hold)
                hold.ends = asked_at + hold.lease / SECOND
                hold.overdue = False
                if renewed:
                    self._emit("renewed", hold)
                    if self._bus.history is not None:
                        self._bus.history.renewed(hold.record, answer.now)
            elif answer.verdict is Verdict.LOST:
                self._lost(hold, answer.now)
            else:
                self._not_renewed(hold, f"the store answered {answer.verdict}")

    def _not_renewed(self, hold: Lease, error: str) -> None:
        now = self.monotonic()
        import random  # imported here: most renewals succeed

        hold.renew_at = now + interval(hold) * (0.1 + 0.2 * random.random())  # noqa: S311 (not for security)
        self._emit("renewal_failed", hold, error)
        if now >= hold.ends and not hold.overdue:
            hold.overdue = True
            self._emit("overdue", hold, error)

    def _lost(self, hold: Lease, now: int) -> None:
        """Mark the lease as lost, unless its owner is just settling it: then the settlement's answer decides."""
        if hold.is_settling:
            hold.renew_at = self.monotonic() + interval(hold)
            return
        if self._holds.pop(hold.nonce, None) is None:
            return
        hold.lost = True
        self._emit("lost", hold)
        if self._bus.history is not None:
            self._bus.history.lost(hold.record, now)
        if hold.on_lost is not None:
            try:
                hold.on_lost()
            except Exception as error:  # noqa: BLE001 (every other lease depends on this thread)
                self._emit("renewal_failed", hold, f"its work could not be cancelled: {error!r}")

    def _connect(self) -> Store:
        if self._own_store is None:
            clone = self._store.clone()
            run(clone.open(ThreadRuntime()))
            self._own_store = clone
        return self._own_store

    def _emit(self, name: str, hold: Lease, error: str = "", reason: str = "") -> None:
        if name == "renewal_failed":
            self._bus.count(name, hold.record.scope)
        self._emit_record(name, hold.record, error, reason)

    def _emit_orphan_released(self, record: Record) -> None:
        self._emit_record("released", record, reason="its answer came too late")

    def _emit_record(self, name: str, record: Record, error: str = "", reason: str = "") -> None:
        if self._bus.wants(name):
            self._bus.emit(
                Event(
                    name=name,
                    key=record.key,
                    scope=record.scope,
                    attempt=record.attempt,
                    token=record.token,
                    reason=reason,
                    error=error,
                )
            )

    def after_fork(self) -> None:
        """Reset in a forked child: it owns no lease, thread or connection of its parent."""
        for hold in self.held():
            hold.inherited = hold.lost = True
        _inherited.append(self._own_store)
        self._reset()


def _completed_by(hold: Lease, record: Record | None) -> bool:
    """Return whether the owner wrote its result in its own transaction (`complete_in`). It may still be working."""
    return (
        record is not None
        and record.state is RecordState.COMPLETED
        and (record.token, record.nonce) == (hold.record.token, hold.nonce)
    )


_heartbeats: weakref.WeakSet[Heartbeat] = weakref.WeakSet()
_inherited: list[object] = []  # referenced, so that the garbage collector does not close the parent's connections


def _forget_parents_leases() -> None:
    for heartbeat in tuple(_heartbeats):
        heartbeat.after_fork()


def _close_all() -> None:
    for heartbeat in tuple(_heartbeats):
        heartbeat.close()


call_in_forked_child(_forget_parents_leases)
atexit.register(_close_all)
