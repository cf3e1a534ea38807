"""Locks: a key that one owner at a time holds. A released lock has no result.

    claim ── another owner holds it ──→ wait for it, up to the deadline
        │ acquired, with a token
    the heartbeat renews it while the block runs
        │ the block ends, with or without an error
    complete, with a window that expires immediately ── replaced in between ──→ LeaseLost

`engine.lock_record` explains why a lock is released by `complete`.
"""

from __future__ import annotations

import weakref
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

_held_here: ContextVar[tuple[weakref.ref[Attempt], ...]] = ContextVar("onceward_locks", default=())
"""Weak references: a lock that no code can release any more is not renewed either."""


def held_here() -> tuple[Attempt, ...]:
    """Return the locks of this call chain. Separate from `current()`: work never completes or annotates a lock."""
    return tuple(lock for reference in _held_here.get() if (lock := reference()) is not None)


class LockedKey(Attempt):
    """One ownership of a lock. It is never `begun`: after an interrupt, the key is only released."""

    unanswered = False  # the store did not reply to a release, which may have been applied nevertheless

    async def settle_again(self, settlement: AnySettlement, failure: Exception, since: float) -> Answer:
        """Send the release at least once more: the answer distinguishes a release that was applied from a loss."""
        self.unanswered = True
        self.engine.emit("settle_retried", self.key, self.record, error=repr(failure))
        try:
            return (await self.engine.store.settle([settlement], timeout=self.job.policy.call_timeout))[0]
        except TRANSIENT as error:
            return await super().settle_again(settlement, error, since)


def new_lock_attempt(engine: Engine, job: Job) -> Attempt:
    """Return the attempt before it is sent to the store."""
    return Unclaimed(engine, job) if switch.off else LockedKey(engine, job)


async def acquire_lock(lock: Attempt) -> None:
    """Acquire the lock, or raise an error that says why it was not acquired."""
    if not isinstance(lock, LockedKey):
        _hold(lock)
        return
    refuse_reentry(lock.engine, lock.job)
    await lock.engine.ready()
    outcome = await claim_lock(lock)
    if not isinstance(outcome, Attempt):
        raise _refusal_error(outcome)
    if lock.job.policy.on_lost == "cancel":
        lock.cancel_if_lost()
    _hold(lock)


async def recover_acquire(lock: Attempt, error: BaseException) -> None:
    """Clean up after `acquire_lock`, or what followed it, raised: the lock is released."""
    _held_here.set(tuple(weakref.ref(one) for one in held_here() if one is not lock))
    if isinstance(lock, LockedKey):
        await recover(lock.engine, [lock], error)


def _hold(lock: Attempt) -> None:
    _held_here.set((*(weakref.ref(one) for one in held_here() if not is_closed(one)), weakref.ref(lock)))


def is_closed(lock: Attempt) -> bool:
    """Return whether the lock was released, or left until its lease expires."""
    return lock.closed or lock.settled is not None


async def claim_lock(lock: LockedKey) -> Attempt | Outcome[object]:
    """Claim the lock, waiting as declared. Return the attempt, or the outcome that explains why not.

    A released lock still looks completed if the store's clock was set back since. It has no result, so the next caller
    forgets the record, if it has not changed, and claims again. Work under the same key that has no payload looks the
    same to the claim, but its result counts: then this raises.
    """
    engine, job = lock.engine, lock.job
    deadline = engine.runtime.monotonic() + job.policy.wait / SECOND
    found = await acquire(lock)
    while isinstance(found, Replayed | Failed):
        id, timeout = job.key.id, job.policy.call_timeout
        record = (await engine.store.read([id], timeout=timeout))[0].record
        if record is not None and not is_lock(record):
            raise _not_a_lock(found.key)
        seen = ExpectedRecord(found.token, RecordState.COMPLETED if isinstance(found, Replayed) else RecordState.FAILED)
        await engine.store.forget([id], force=False, timeout=timeout, seen={id: seen})
        remaining = max(0.0, deadline - engine.runtime.monotonic())
        lock.job = replace(job, policy=replace(job.policy, wait=round(remaining * SECOND)))
        found = await acquire(lock)
    return found


def refuse_reentry(engine: Engine, job: Job) -> None:
    for lock in held_here():
        same = lock.key.id == job.key.id and lock.engine.heartbeat is engine.heartbeat
        if same and not is_closed(lock) and not lock.inherited:
            raise Reentrant(
                "this lock is already held by the caller that wants to acquire it; waiting would never end",
                key=job.key.text,
                hint="acquire it once, around both; or start the work that waits for it in a context of its own",
            )


def _refusal_error(found: Outcome[object]) -> BaseException:
    return _not_a_lock(found.key) if isinstance(found, Mismatch) else refusal_error(found)


def _not_a_lock(key: str) -> PayloadMismatch:
    return PayloadMismatch("this key is not a lock: other work was claimed under it", key=key)


async def release_lock(lock: Attempt) -> None:
    """Release the lock. Only its owner can: if it was replaced, nothing changes, and LeaseLost is raised."""
    if is_closed(lock):
        return
    clock = lock.engine.runtime.monotonic
    in_time = not lock.lost and clock() < lock.ends  # until then, no other owner can have taken it over
    lock.retry_until = min(
        lock.retry_until, max(lock.ends, clock())
    )  # after that, it is free because its lease has expired
    try:
        answer = await lock.settle(lock_release(lock.record), RecordState.FREE)
    except StoreError as error:
        lock.abandon()
        lock.engine.emit(
            "unknown", lock.key, lock.record, reason="not released; its lease will expire", error=repr(error)
        )
        raise
    if answer.verdict is Verdict.OK or (in_time and _released_before(lock, answer)):
        return
    if answer.verdict is Verdict.SKEW:
        raise VersionSkew("the lock was rewritten by a newer Onceward", key=lock.key.text, hint="upgrade this process")
    lock.engine.emit("lost", lock.key, lock.record, reason="release refused")
    raise LeaseLost(
        "this lock had another owner before its block ended: the block did not run alone",
        key=lock.key.text,
        hint="pass the token to the resource that the lock protects, or make the lease longer",
    )


def _released_before(lock: Attempt, answer: Answer) -> bool:
    """Return whether our release was applied and its reply lost: the lock is in a later cycle, not taken over."""
    record = answer.record
    return getattr(lock, "unanswered", False) and (record is None or record.cycle != lock.record.cycle)


async def leave(lock: Attempt, error: BaseException | None) -> None:
    """Release the lock at the end of its block. If the block raised, a lost lock is added as a note to that error."""
    if lock.end(error):
        error = None  # the work was cancelled because the lock is lost: raise LeaseLost instead
    try:
        await release_lock(lock)
    except OncewardError as failure:
        if error is None:
            raise
        error.add_note(f"the lock: {failure}")


async def leave_interrupted(lock: Attempt, interrupt: BaseException) -> None:
    """Release the lock now if an interrupt kept `leave` from doing so. Errors of Onceward mean that it has tried."""
    if not (lock.closed or isinstance(interrupt, OncewardError) or _is_closing(lock, interrupt)):
        lock.hurry()
        with suppress(OncewardError):
            await release_lock(lock)
    lock.abandon()


def _is_closing(lock: Attempt, interrupt: BaseException) -> bool:
    """Return whether the coroutine is being closed, so that it can no longer wait for a store."""
    return lock.engine.runtime.supports_cancellation and isinstance(interrupt, GeneratorExit)
