"""One run of a schedule: claim the slot, acquire the overlap lock (unless runs may overlap), run, settle.

    claim the slot ── not acquired ──→ Replayed, Running, Failed, Parked
        │ acquired
    acquire the overlap lock ── an earlier run has not ended ──→ the slot is settled as skipped
        │ acquired, or runs may overlap
    run the handler, settle the slot, release the overlap lock

The slot is claimed first. A process that held only the lock would block a run that it does not do itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from onceward.engine import settle
from onceward.engine.abandon import abandon
from onceward.engine.attempt import UNPROTECTED, Attempt
from onceward.engine.block import enter_owned, leave
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.engine.lock_record import LOCK_FINGERPRINT, lock_release
from onceward.engine.refusal import refusal_error
from onceward.engine.runner import claim_one, perform
from onceward.errors import NotAcquired, StoreError
from onceward.locks.flow import claim_lock
from onceward.protocol.operation_names import SKIPPED
from onceward.protocol.outcome import Failed, Outcome, Running, Stale
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Fail, Resolution, Resolve

from .definition import Schedule

WRONG_TIME_HINTS = {
    "too early": "by the store's clock, its slot is in the future; early= sets how far a clock may be ahead",
    "too late": "catch_up_age= sets how late a run may be; rerun=True runs it anyway",
}


class SlotRun:
    """One run: its schedule, its slot, the job that does it, and the overlap lock while it is held."""

    def __init__(self, schedule: Schedule, slot: int, job: Job, *, wait_for_lock: bool = False) -> None:
        self.schedule = schedule
        self.slot = slot
        self.job = job
        self.wait_for_lock = wait_for_lock  # a late run waits for the lock: if it were skipped, it would not catch up
        self.overlap_lock: Attempt | None = None

    def lock_job(self) -> Job:
        """Return the job that acquires the overlap lock.

        It is an ordinary lock. If its owner crashes, it is free again, whatever `after_crash` says about the slot.
        """
        waits = self.wait_for_lock or self.schedule.slots.overlap == "wait"
        policy = replace(
            self.job.policy,
            on_running="wait" if waits else "raise",
            after_crash=AfterCrash.RERUN,
            find=None,
            verify_after=0,
            max_attempts=0,
            on_lost="notify",
        )
        return Job(self.schedule.overlap_lock, policy, self.job.codec, LOCK_FINGERPRINT)


async def run_slot(engine: Engine, run: SlotRun) -> Outcome[Any]:
    """Run this slot, unless it was run before, or another worker runs it."""
    slot = Attempt(engine, run.job)
    try:
        refused = await _claim_slot(engine, run, slot)
        outcome = await perform(slot) if refused is None else refused
    except BaseException as error:
        await abandon([slot], error)
        await release_overlap_lock(run)
        raise
    await release_overlap_lock(run)
    return outcome


async def _claim_slot(engine: Engine, run: SlotRun, slot: Attempt) -> Outcome[Any] | None:
    """Claim the slot and acquire the overlap lock. Return the outcome that explains why not, or None."""
    refused = await claim_one(slot)
    if isinstance(refused, Failed) and refused.error_type == SKIPPED:
        return replace(refused, reason="skipped")
    if refused is not None:
        return refused
    if run.schedule.slots.overlap == "allow" or slot.state is UNPROTECTED:
        return None
    other = await claim_lock(engine, run.lock_job())
    if isinstance(other, Attempt):
        other.begin()
        run.overlap_lock = other
        return None
    if engine.stopping:
        await settle.release(slot)
        return Running(key=slot.key.text, reason="stopping")
    return await _skip(slot, other)


async def _skip(attempt: Attempt, other: Outcome[Any]) -> Outcome[Any]:
    """Settle the slot as skipped. That is not a success, so it is FAILED; `rerun=True` can still run it."""
    owner = other.owner if isinstance(other, Running) else ""
    why = f"another run of this schedule had not ended{f' ({owner})' if owner else ''}"
    record = attempt.record
    validity = attempt.job.policy.window.validity(record.claimed_at)
    fail = Fail(attempt.key.id, record.token, record.nonce, SKIPPED, why, final=True, known=True, validity=validity)
    await settle.settle(attempt, fail, RecordState.FAILED)
    return Failed(
        key=attempt.key.text,
        reason="skipped",
        attempt=record.attempt,
        token=record.token,
        error_type=SKIPPED,
        error=why,
        final=True,
    )


async def release_overlap_lock(run: SlotRun) -> None:
    """Release the overlap lock. If the store does not answer, the next run can begin when the lease expires."""
    lock, run.overlap_lock = run.overlap_lock, None
    if lock is not None and not (lock.is_ended or lock.inherited):
        lock.hurry()
        with suppress(StoreError):
            await settle.settle(lock, lock_release(lock.record), RecordState.FREE)


# ── runs that an external scheduler starts ──────────────────────────────────────────────────────────────────

MakeJob = Callable[[int], Job]
"""Returns the job of a slot."""


async def tick(engine: Engine, schedule: Schedule, slot: int | None, job: MakeJob, *, rerun: bool) -> Outcome[Any]:
    """Run this slot or, if it is None, the slot that is due by the store's clock."""
    await engine.ready()
    found = await slot_for_tick(engine, schedule, slot, rerun=rerun)
    if not isinstance(found, int):
        engine.emit("skipped", schedule.overlap_lock if slot is None else schedule.key(slot), reason=found.reason)
        return found
    return await run_slot(engine, SlotRun(schedule, found, _watching(job(found))))


def _watching(job: Job) -> Job:
    """Return the job of a tick. If another worker runs the slot, the tick waits, and takes over if that worker crashes.

    The loop of `run_schedules` checks such a slot again; a tick has no loop.
    """
    return replace(job, policy=replace(job.policy, on_running="wait")) if job.policy.wait else job


async def slot_for_tick(engine: Engine, schedule: Schedule, slot: int | None, *, rerun: bool) -> int | Outcome[Any]:
    """Return the slot that a tick is for, or an outcome if the tick is too early or too late."""
    timeout, slots = schedule.policy.call_timeout, schedule.slots
    key = schedule.overlap_lock if slot is None else schedule.key(slot)
    answer = (await engine.store.read([key.id], timeout=timeout))[0]
    if slot is None:
        slot = schedule.slot_at(answer.now)
        if slot is None:
            return Stale(key=schedule.name, reason="no slot yet")
        key = schedule.key(slot)
    if rerun:
        await allow_rerun(engine, schedule, slot)
    elif slot - answer.now > slots.early:
        return Stale(key=key.text, reason="too early")
    elif answer.now - slot > slots.catch_up_age:  # its record may be purged, and then it could run twice
        return Stale(key=key.text, reason="too late")
    return slot


async def allow_rerun(engine: Engine, schedule: Schedule, slot: int) -> None:
    """Let a failed slot run once more. Of several concurrent callers, one succeeds."""
    id, timeout = schedule.key(slot).id, schedule.policy.call_timeout
    record = (await engine.store.read([id], timeout=timeout))[0].record
    if record is not None and record.state is RecordState.FAILED:
        request = Resolve(id, record.token, Resolution.NOT_APPLIED, state_seen=RecordState.FAILED)
        await engine.store.settle([request], timeout=timeout)


async def enter(
    engine: Engine, schedule: Schedule, slot: int | None, job: MakeJob, *, rerun: bool
) -> tuple[Attempt, SlotRun]:
    """Claim the slot for a block that does the work itself; otherwise as `tick`. Raise if the slot is not acquired."""
    await engine.ready()
    found = await slot_for_tick(engine, schedule, slot, rerun=rerun)
    if not isinstance(found, int):
        raise NotAcquired(f"this tick is {found.reason}", key=found.key, hint=WRONG_TIME_HINTS.get(found.reason))
    run = SlotRun(schedule, found, _watching(job(found)))
    attempt = Attempt(engine, run.job)
    try:
        refused = await _claim_slot(engine, run, attempt)
        if refused is not None:
            raise refusal_error(refused)  # noqa: TRY301 (cleaned up like other errors)
        await enter_owned(attempt)
    except BaseException as error:
        await abandon([attempt], error)
        await release_overlap_lock(run)
        raise
    return attempt, run


async def end(attempt: Attempt, run: SlotRun, error: BaseException | None) -> None:
    """Settle the run of a block and release its overlap lock, whatever happened inside."""
    try:
        await leave(attempt, error)
    finally:
        await release_overlap_lock(run)
