"""The lease keeper: one background thread per store that renews every lease of this process, in batches.

It has a connection of its own and knows no event loop: a blocked loop or a busy pool cannot starve it. One failed
renewal is retried until the store answers. `overdue`: no answer by the end of the lease as we count it; renewing goes
on and may recover. `lost`: the store showed another owner; only this ends the work.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol

from onceward.engine.events import Bus, Event
from onceward.engine.lease import Lease
from onceward.errors import ConfigurationError
from onceward.protocol.policy import RENEWALS_PER_LEASE, SECOND
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import AnySettlement, Renewal, Verdict

from .bridge import run
from .orphans import OrphanReconciler
from .threads import ThreadRuntime

BATCH = 256
IDLE = 60.0  # seconds between looks while nothing is held
SOON, LATER = 0.02, 1.0  # seconds between tries to settle what a transaction keeps us from
UNTOLD = 1.0  # seconds that a close waits without a word
A_MICROSECOND, TO_RENEWAL = 1 / SECOND, 1 / RENEWALS_PER_LEASE  # every claim comes by: to multiply is quicker
ENDING = 0.1  # seconds that one such try may take: others' renewals wait behind it


class Granted(Protocol):
    """What a claim was granted under this nonce."""

    @property
    def nonce(self) -> bytes: ...


def interval(hold: Lease) -> float:
    """Seconds between two renewals."""
    return hold.lease / SECOND / RENEWALS_PER_LEASE


class Ending:
    """A settlement that has to wait until somebody's transaction is over."""

    __slots__ = ("hold", "pause", "settlement", "try_at")

    def __init__(self, hold: Lease, settlement: AnySettlement, now: float) -> None:
        self.hold = hold
        self.settlement = settlement
        self.pause = SOON
        self.try_at = now + SOON


class Heartbeat:
    """Renews what is held. Starts its thread with the first hold and joins it on close."""

    def __init__(self, store: Store, bus: Bus, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._bus = bus
        self._monotonic = monotonic
        self._reset()
        _keepers.add(self)

    def _reset(self) -> None:
        self._holds: dict[bytes, Lease] = {}
        self._endings: dict[bytes, Ending] = {}
        self._seeker = OrphanReconciler(self._monotonic)
        self._twin: Store | None = None
        self._thread: threading.Thread | None = None
        self._running = False
        self._lock = threading.RLock()  # a signal handler may claim while its thread rings
        self._bell = threading.Condition(self._lock)  # entered by its lock: in between, no signal can raise
        self._next_look = 0.0
        self._closing = False

    def take(self, hold: Lease, since: float) -> None:
        """Take a lease into care; `since` is our own clock from before it was asked for. No thread: raises."""
        seconds = hold.lease * A_MICROSECOND
        hold.ends = since + seconds
        hold.renew_at = renew_at = since + seconds * TO_RENEWAL
        self._holds[hold.nonce] = hold
        if not self._running:
            try:
                self._start()
            except BaseException:
                self.drop(hold)
                raise
        if renew_at < self._next_look:
            with self._lock:
                self._bell.notify()

    def drop(self, hold: Granted) -> None:
        """Let it go. What was granted is known by its nonce, also where an interrupt came before its hold."""
        self._holds.pop(hold.nonce, None)

    def settle_later(self, hold: Lease, settlement: AnySettlement) -> None:
        """Settle it as soon as the store takes that: its owner's open transaction is in the way. Else it lapses."""
        self._endings[hold.nonce] = Ending(hold, settlement, self._monotonic())
        with self._lock:
            self._bell.notify()

    def reconcile(self, hold: Granted, id: bytes, lease: int) -> None:
        """Nobody knows whether this claim was granted, and its caller has left: give it back, if it was."""
        self._seeker.add(id, hold.nonce, lease * A_MICROSECOND)
        with suppress(RuntimeError, ConfigurationError):  # no thread, or closed: then it lapses
            if not self._running:
                self._start()
        with self._lock:
            self._bell.notify()

    def drain(self, timeout: float, *, own: Collection[Lease] = ()) -> None:
        """Wait until nothing is held any more, and tell what still is: that lapses by itself, fenced.

        `own` are leases of the caller, who cannot end them while it waits here.
        """
        began = time.monotonic()
        told = timeout <= UNTOLD
        while self._endings or any(hold not in own for hold in tuple(self._holds.values())):
            waited = time.monotonic() - began
            if waited >= timeout:
                break
            if waited >= UNTOLD and not told:
                told = True
                self._tell_held(f"close waits for it, for {timeout - waited:.0f} s at most")
            time.sleep(0.01)
        self._tell_held("closed all the same: it is free when its lease lapses")

    def _tell_held(self, reason: str) -> None:
        for hold in tuple(self._holds.values()):
            self._tell("still_held", hold, reason=reason)

    def shortest_lease(self) -> float | None:
        """Seconds; None if nothing is held."""
        return min((hold.lease for hold in tuple(self._holds.values())), default=0) / SECOND or None

    def due(self) -> list[Lease]:
        """Leases whose renewal is due now (for a transaction that keeps the keeper out)."""
        now = self._monotonic()
        return [hold for hold in tuple(self._holds.values()) if hold.renew_at <= now]

    def close(self) -> None:
        """Stop renewing and join the thread. Leases that are still held lapse by themselves."""
        thread = self._thread
        with self._lock:
            self._closing = True
            self._bell.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=10)
        self._thread = None

    def _start(self) -> None:
        with self._lock:
            if self._running:
                return
            if self._closing:
                raise ConfigurationError("this client is closed", hint="make a new one")
            thread = threading.Thread(target=self._run, name="onceward-keeper", daemon=True)
            thread.start()
            self._thread = thread
            self._running = True  # the thread cannot have ended yet: its first step needs our lock

    def _run(self) -> None:
        try:
            while not self._closing:
                with self._lock:
                    self._plan()
                    if not self._closing:
                        self._bell.wait(max(0.0, self._next_look - self._monotonic()))
                if not self._closing:
                    self._pass()
        finally:
            self._running = False
        if self._twin is not None and self._twin is not self._store:
            run(self._twin.close())

    def _pass(self) -> None:
        """One pass that nothing can end the thread with: every other lease depends on it."""
        try:
            self.tick()
        except BaseException as error:  # noqa: BLE001 (a store or a listener out of its mind, SystemExit included)
            left = self.due()
            for hold in left:
                hold.renew_at = self._monotonic() + interval(hold) / RENEWALS_PER_LEASE  # soon, but without spinning
            with suppress(BaseException):
                for hold in left:
                    self._tell("renewal_failed", hold, repr(error))

    def _plan(self) -> None:
        """When to look next. A hold that is due only after that rings no bell, so look at least every interval."""
        self._next_look = math.inf  # whoever comes while we count must ring
        now = self._monotonic()
        holds = tuple(self._holds.values())
        shortest = min(map(interval, holds), default=IDLE)
        endings = tuple(self._endings.values())
        self._next_look = min(
            [
                now + shortest,
                self._seeker.next_look(),
                *(hold.renew_at for hold in holds),
                *(ending.try_at for ending in endings),
            ]
        )

    def tick(self) -> None:
        """Renew everything that is due. One pass of the thread; tests call it with a fake clock."""
        due = self.due()
        for start in range(0, len(due), BATCH):
            self._renew(due[start : start + BATCH])
        for ending in tuple(self._endings.values()):
            self._end(ending)
        for record in self._seeker.look(self._connected):
            self._tell_of("released", record, reason="its answer came too late")

    def _end(self, ending: Ending) -> None:
        now, hold = self._monotonic(), ending.hold
        if now < ending.try_at:
            return
        verdict = None
        if now < hold.ends:
            with suppress(Exception):  # it is tried again, and lapses in the end
                verdict = run(self._connected().settle([ending.settlement], timeout=ENDING))[0].verdict
            if verdict is None or verdict is Verdict.RUNNING:
                ending.pause = min(ending.pause * 2, LATER)
                ending.try_at = self._monotonic() + ending.pause
                return
        self._endings.pop(hold.nonce, None)
        if verdict is Verdict.OK:
            self._tell("failed", hold, getattr(ending.settlement, "error_type", ""))

    def _renew(self, due: list[Lease]) -> None:
        asked_at = self._monotonic()
        timeout = min(hold.lease for hold in due) / SECOND / 6
        try:
            renewals = [Renewal(one.record.id, one.record.token, one.nonce, one.lease) for one in due]
            answered = list(zip(due, renewals, run(self._connected().renew(renewals, timeout=timeout)), strict=True))
        except Exception as error:  # noqa: BLE001 (whatever it is, the lease is not renewed yet and must be tried again)
            for hold in due:
                self._not_renewed(hold, repr(error))
            return
        for hold, renewal, answer in answered:
            if (hold.record.token, hold.nonce) != (renewal.token, renewal.nonce):  # claimed anew meanwhile
                continue
            renewed = answer.verdict is Verdict.OK
            if renewed or _completed_by(hold, answer.record):
                hold.renew_at = asked_at + interval(hold)
                hold.ends = asked_at + hold.lease / SECOND
                hold.overdue = False
                if renewed:
                    self._tell("renewed", hold)
            elif answer.verdict is Verdict.LOST:
                self._lost(hold)
            else:
                self._not_renewed(hold, f"the store answered {answer.verdict}")

    def _not_renewed(self, hold: Lease, error: str) -> None:
        now = self._monotonic()
        import random  # here, because most renewals succeed

        hold.renew_at = now + interval(hold) * (0.1 + 0.2 * random.random())  # noqa: S311 (spreads retries, guards nothing)
        self._tell("renewal_failed", hold, error)
        if now >= hold.ends and not hold.overdue:
            hold.overdue = True
            self._tell("overdue", hold, error)

    def _lost(self, hold: Lease) -> None:
        """The store showed another owner — unless the work is just being settled by its own owner, who will be told."""
        if hold.settling:
            hold.renew_at = self._monotonic() + interval(hold)
            return
        if self._holds.pop(hold.nonce, None) is None:
            return
        hold.lost = True
        self._tell("lost", hold)
        if hold.on_lost is not None:
            try:
                hold.on_lost()
            except Exception as error:  # noqa: BLE001 (every other lease depends on this thread)
                self._tell("renewal_failed", hold, f"its work could not be told: {error!r}")

    def _connected(self) -> Store:
        if self._twin is None:
            clone = self._store.clone()
            run(clone.open(ThreadRuntime()))
            self._twin = clone
        return self._twin

    def _tell(self, name: str, hold: Lease, error: str = "", reason: str = "") -> None:
        if name == "renewal_failed":
            self._bus.count(name, hold.record.scope)
        self._tell_of(name, hold.record, error, reason)

    def _tell_of(self, name: str, record: Record, error: str = "", reason: str = "") -> None:
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
        """A child owns no lease, no thread and no connection of its parent."""
        for hold in self._holds.values():
            hold.inherited = hold.lost = True
            hold.is_simple = False
        _inherited.append(self._twin)
        self._reset()


def _completed_by(hold: Lease, record: Record | None) -> bool:
    """Its owner wrote the result in a transaction of its own (`complete_in`), and may be at work still."""
    return (
        record is not None
        and record.state is RecordState.COMPLETED
        and (record.token, record.nonce) == (hold.record.token, hold.nonce)
    )


_keepers: weakref.WeakSet[Heartbeat] = weakref.WeakSet()
_inherited: list[object] = []  # kept, so that the garbage collector closes nothing that belongs to the parent


def _forget_parents_leases() -> None:
    for heartbeat in tuple(_keepers):
        heartbeat.after_fork()


def _close_all() -> None:
    for heartbeat in tuple(_keepers):
        heartbeat.close()


os.register_at_fork(after_in_child=_forget_parents_leases)
atexit.register(_close_all)
