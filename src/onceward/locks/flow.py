"""Locks: a key that one owner at a time holds, and that answers for nothing once it is given up.

    claim ── somebody has it ──→ wait for it, up to the deadline
        │ ours, with a token
    the keeper renews it while the block runs
        │ however the block ends
    complete, with a window that is over at once ── replaced meanwhile ──→ LeaseLost

Which verbs these are, and why, is told in `engine.lock_record`.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar

from msgspec.structs import replace

from onceward.engine import switch
from onceward.engine.acquire import acquire
from onceward.engine.attempt import Attempt
from onceward.engine.block import refusal_error
from onceward.engine.engine import Engine
from onceward.engine.interrupted import recover
from onceward.engine.job import Job
from onceward.engine.lock_record import is_lock, lock_release
from onceward.engine.settlement import TRANSIENT
from onceward.engine.unclaimed import Unclaimed
from onceward.errors import LeaseLost, OncewardError, PayloadMismatch, Reentrant, StoreError, VersionSkew
from onceward.protocol.outcome import Failed, Mismatch, Outcome, Replayed
from onceward.protocol.policy import SECOND
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnySettlement, ExpectedRecord, Verdict

_held_here: ContextVar[tuple[Attempt, ...]] = ContextVar("onceward_locks", default=())

held_here = _held_here.get
"""The locks of this call chain. Apart from `current()`: what work completes or annotates is never a lock."""


class LockedKey(Attempt):
    """One ownership of a lock. Never `begun`: whatever interrupts its making finds only a key to give back."""

    unanswered = False  # the store did not reply to a release, which may have been applied all the same

    async def settle_again(self, settlement: AnySettlement, trouble: Exception, since: float) -> Answer:
        """Once more at any rate: how the lock stands tells a release that was applied from a loss."""
        self.unanswered = True
        self.engine.emit("settle_retried", self.key, self.record, error=repr(trouble))
        try:
            return (await self.engine.store.settle([settlement], timeout=self.job.policy.call_timeout))[0]
        except TRANSIENT as error:
            return await super().settle_again(settlement, error, since)


def untaken(engine: Engine, job: Job) -> Attempt:
    """The lock before it is asked for: whatever interrupts the asking, it can be given back."""
    return Unclaimed(engine, job) if switch.off else LockedKey(engine, job)


async def take(lock: Attempt) -> None:
    """Own the lock, or raise what stands in the way."""
    if not isinstance(lock, LockedKey):
        _entered(lock)
        return
    refuse_reentry(lock.engine, lock.job)
    await lock.engine.ready()
    found = await granted(lock)
    if not isinstance(found, Attempt):
        raise _refusal(found)
    if lock.job.policy.on_lost == "cancel":
        lock.cancel_if_lost()
    _entered(lock)


async def refused(lock: Attempt, error: BaseException) -> None:
    """`take` raised, or what followed it: nobody has it."""
    _held_here.set(tuple(one for one in held_here() if one is not lock))
    if isinstance(lock, LockedKey):
        await recover(lock.engine, [lock], error)


def _entered(lock: Attempt) -> None:
    _held_here.set((*(one for one in held_here() if not is_over(one)), lock))


def is_over(lock: Attempt) -> bool:
    """Whether it was released, or left to lapse."""
    return lock.closed or lock.settled is not None


async def granted(lock: LockedKey) -> Attempt | Outcome[object]:
    """The grant, or who has it.

    A lock that was given up still seems to answer for its key if the store's clock was set back since. It answers for
    nothing, so whoever meets it frees it, if it is still what was seen. Work that has no payload to tell it from a lock
    does answer for its key.
    """
    engine, job = lock.engine, lock.job
    deadline = engine.runtime.monotonic() + job.policy.wait / SECOND
    found = await acquire(lock)
    while isinstance(found, Replayed | Failed):
        id, timeout = job.key.id, job.policy.call_timeout
        record = (await engine.store.read([id], timeout=timeout))[0].record
        if record is not None and not is_lock(record):
            raise _no_lock(found.key)
        seen = ExpectedRecord(found.token, RecordState.COMPLETED if isinstance(found, Replayed) else RecordState.FAILED)
        await engine.store.forget([id], force=False, timeout=timeout, seen={id: seen})
        left = max(0.0, deadline - engine.runtime.monotonic())
        lock.job = replace(job, policy=replace(job.policy, wait=round(left * SECOND)))
        found = await acquire(lock)
    return found


def refuse_reentry(engine: Engine, job: Job) -> None:
    for lock in held_here():
        same = lock.key.id == job.key.id and lock.engine.heartbeat is engine.heartbeat
        if same and not is_over(lock) and not lock.inherited:
            raise Reentrant(
                "this lock is already held by the call that asks for it; waiting for it would never end",
                key=job.key.text,
                hint="hold it once, around both; or start what shall wait for it in a context of its own",
            )


def _refusal(found: Outcome[object]) -> BaseException:
    return _no_lock(found.key) if isinstance(found, Mismatch) else refusal_error(found)


def _no_lock(key: str) -> PayloadMismatch:
    return PayloadMismatch("this key is no lock: other work was claimed under it", key=key)


async def give_up(lock: Attempt) -> None:
    """Free it for everybody. Only its owner can: a replaced one changes nothing and is told."""
    if is_over(lock):
        return
    clock = lock.engine.runtime.monotonic
    in_time = not lock.lost and clock() < lock.ends  # until here, nobody can have taken it over
    lock.retry_until = min(lock.retry_until, max(lock.ends, clock()))  # from then on it is free by itself
    try:
        answer = await lock.settle(lock_release(lock.record), RecordState.FREE)
    except StoreError as error:
        lock.abandon()
        lock.engine.emit("unknown", lock.key, lock.record, reason="not released, its lease lapses", error=repr(error))
        raise
    if answer.verdict is Verdict.OK or (in_time and _released_before(lock, answer)):
        return
    if answer.verdict is Verdict.SKEW:
        raise VersionSkew("the lock was rewritten by a newer Onceward", key=lock.key.text, hint="upgrade this process")
    lock.engine.emit("lost", lock.key, lock.record, reason="release refused")
    raise LeaseLost(
        "this lock had another owner before its block ended: the block was not alone",
        key=lock.key.text,
        hint="give the token to what the lock protects, or make the lease longer",
    )


def _released_before(lock: Attempt, answer: Answer) -> bool:
    """Our release was applied, its reply lost, and the lock has had another life since: not a take-over of ours."""
    record = answer.record
    return getattr(lock, "unanswered", False) and (record is None or record.cycle != lock.record.cycle)


async def leave(lock: Attempt, error: BaseException | None) -> None:
    """The end of a block. What was raised inside goes on; that the lock was lost then stands in its notes."""
    if lock.end(error):
        error = None  # its work was cancelled because the lock is lost, and that is what has to be told
    try:
        await give_up(lock)
    except OncewardError as trouble:
        if error is None:
            raise
        error.add_note(f"and its lock: {trouble}")


async def left(lock: Attempt, interrupt: BaseException) -> None:
    """`leave` raised. Unless that was its own last word, an interrupt kept it from having one: have it now."""
    if not (lock.closed or isinstance(interrupt, OncewardError) or _closing(lock, interrupt)):
        lock.hurry()
        with suppress(OncewardError):
            await give_up(lock)
    lock.abandon()


def _closing(lock: Attempt, interrupt: BaseException) -> bool:
    """A coroutine that is being closed cannot wait for a store any more."""
    return lock.engine.runtime.supports_cancellation and isinstance(interrupt, GeneratorExit)
