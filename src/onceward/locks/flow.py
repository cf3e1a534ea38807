"""Locks: a key that one owner at a time holds. A released lock has no result.

    claim ── another owner holds it ──→ wait for it, up to the deadline
        │ acquired, with a token
    the heartbeat renews it while the block runs
        │ the block ends, with or without an error
    complete, with a window that expires immediately ── replaced in between ──→ LeaseLost

`engine.lock_record` explains why a lock is released by `complete`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any
from weakref import ref

from msgspec.structs import replace

from onceward.engine.abandon import abandon, closes_coroutine, release_later
from onceward.engine.attempt import SETTLING, UNPROTECTED, Attempt
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.engine.lock_record import is_lock, lock_release
from onceward.engine.refusal import refusal_error
from onceward.engine.runner import claim_one
from onceward.engine.settle import settle
from onceward.errors import LeaseLost, OncewardError, PayloadMismatch, Reentrant, StoreError, VersionSkew
from onceward.protocol.outcome import Failed, Mismatch, Outcome, Replayed
from onceward.protocol.policy import SECOND
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, ExpectedRecord, Verdict

_held_here: ContextVar[tuple[ref[Attempt], ...]] = ContextVar("onceward_locks", default=())
"""Weak references: the lease of a lock that no live object refers to expires."""


def held_here() -> list[Attempt]:
    """Return the locks of this call chain. Separate from `current()`: work never completes or annotates a lock."""
    return [lock for one in _held_here.get() if (lock := one()) is not None]


async def acquire_lock(engine: Engine, job: Job) -> Attempt:
    """Acquire the lock, or raise an error that says why it was not acquired."""
    _refuse_reentry(engine, job)
    found = await claim_lock(engine, job)
    if not isinstance(found, Attempt):
        raise _not_a_lock(found.key) if isinstance(found, Mismatch) else refusal_error(found)
    try:
        _held_here.set((*(ref(one) for one in held_here() if not is_closed(one)), ref(found)))
        found.begin()
    except BaseException as error:
        await abandon([found], error)
        raise
    return found


def is_closed(lock: Attempt) -> bool:
    """Return whether the lock was released or is being released, or was left until its lease expires."""
    return lock.is_ended or lock.state is SETTLING or lock.settled_as is not None


async def claim_lock(engine: Engine, job: Job) -> Attempt | Outcome[Any]:
    """Claim the lock, waiting as declared. Return the attempt, or the outcome that explains why not.

    A released lock still looks completed if the store's clock was set back since. It has no result, so the next caller
    forgets the record, if it has not changed, and claims again. Work under the same key that has no payload looks the
    same to the claim, but its result counts: then this raises.
    """
    deadline = engine.runtime.monotonic() + job.policy.wait / SECOND
    while True:
        lock = Attempt(engine, job)
        try:
            refused = await claim_one(lock)
        except BaseException as error:
            await abandon([lock], error)
            raise
        if refused is None:
            return lock
        if not isinstance(refused, Replayed | Failed):
            return refused
        await _forget_released(engine, job, refused)
        remaining = max(0.0, deadline - engine.runtime.monotonic())
        job = replace(job, policy=replace(job.policy, wait=round(remaining * SECOND)))


async def _forget_released(engine: Engine, job: Job, found: Replayed[Any] | Failed[Any]) -> None:
    id, timeout = job.key.id, job.policy.call_timeout
    record = (await engine.store.read([id], timeout=timeout))[0].record
    if record is not None and not is_lock(record):
        raise _not_a_lock(found.key)
    seen = ExpectedRecord(found.token, RecordState.COMPLETED if isinstance(found, Replayed) else RecordState.FAILED)
    await engine.store.forget([id], force=False, timeout=timeout, seen={id: seen})


def _refuse_reentry(engine: Engine, job: Job) -> None:
    for lock in held_here():
        same = lock.key.id == job.key.id and lock.engine.heartbeat is engine.heartbeat
        if same and not (is_closed(lock) or lock.inherited or lock.state is UNPROTECTED):
            raise Reentrant(
                "this lock is already held by the caller that wants to acquire it; waiting would never end",
                key=job.key.text,
                hint="acquire it once, around both; or start the work that waits for it in a context of its own",
            )


def _not_a_lock(key: str) -> PayloadMismatch:
    return PayloadMismatch("this key is not a lock: other work was claimed under it", key=key)


async def release_lock(lock: Attempt) -> None:
    """Release the lock. Only its owner can: if it was replaced, nothing changes, and LeaseLost is raised."""
    if is_closed(lock):
        return
    clock = lock.engine.runtime.monotonic
    in_time = not lock.lost and clock() < lock.ends  # until then, no other owner can have taken it over
    lock.retry_until = min(lock.retry_until, lock.ends)  # after that, it is free because its lease has expired
    try:
        answer = await settle(lock, lock_release(lock.record), RecordState.FREE)
    except StoreError as error:
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
    return lock.asked_again and (record is None or record.cycle != lock.record.cycle)


async def leave(lock: Attempt, error: BaseException | None) -> None:
    """Release the lock at the end of its block. If the block raised, a lost lock is added as a note to that error."""
    if closes_coroutine(lock, error) and not is_closed(lock):
        lock.abandon()
        release_later([lock])
        return
    if lock.end(error):
        error = None  # the work was cancelled because the lock is lost: raise LeaseLost instead
    try:
        await release_lock(lock)
    except OncewardError as failure:
        if error is None:
            raise
        error.add_note(f"the lock: {failure}")
    finally:
        lock.abandon()  # if an interrupt came first, its lease expires
