"""One run of a schedule: claim the slot, then, unless runs may overlap, the turn; run; settle.

    claim the slot ── not ours ──→ Replayed, Running, Failed, Parked
        │ ours
    take the turn ── an earlier run is still going ──→ the slot is settled as skipped
        │ ours, or runs may overlap
    run the handler, settle the slot, give up the turn

The slot comes first: whoever has the turn without it would keep others from a run that it does not do itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from onceward.engine import switch
from onceward.engine.acquire import acquire
from onceward.engine.attempt import Attempt
from onceward.engine.block import leave, left, refusal, unentered
from onceward.engine.engine import Engine
from onceward.engine.execute import ask_first, disabled, perform
from onceward.engine.interrupted import recover
from onceward.engine.job import Job
from onceward.engine.lock_record import MARK, given_up
from onceward.engine.unclaimed import Unclaimed
from onceward.errors import NotAcquired, StoreError
from onceward.locks.flow import LockedKey, granted
from onceward.protocol.outcome import Failed, Outcome, Running, Stale
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Fail, Resolution, Resolve

from .definition import SKIPPED, Schedule

OF_FIRES = {
    "too early": "its slot has not come by the store's clock; early= says by how much a clock may be ahead",
    "too late": "catch_up_age= says how late a run may be; rerun=True runs it all the same",
}


class Run:
    """What is needed of one run: its schedule, its slot, and the job that does it."""

    def __init__(self, schedule: Schedule, slot: int, job: Job, *, patient: bool = False) -> None:
        self.schedule = schedule
        self.slot = slot
        self.job = job
        self.patient = patient  # a late run waits for its turn: skipping it would undo the catching up
        self.turn: Attempt | None = None

    @property
    def overlaps(self) -> bool:
        return self.schedule.slots.overlap == "allow"

    def turn_job(self) -> Job:
        """A lock like any other: when its owner falls silent it is free, whatever that means for the slot."""
        waits = self.patient or self.schedule.slots.overlap == "wait"
        policy = replace(
            self.job.policy,
            on_running="wait" if waits else "raise",
            after_crash=AfterCrash.RERUN,
            find=None,
            verify_after=0,
            max_attempts=0,
            on_lost="notify",
        )
        return Job(self.schedule.turn, policy, self.job.codec, MARK)

    async def torn_open(self, engine: Engine, slot: Attempt, error: BaseException) -> None:
        """Leave neither the slot nor the turn locked."""
        await recover(engine, [slot] if self.turn is None else [slot, self.turn], error)
        self.turn = None


async def run_slot(engine: Engine, run: Run) -> Outcome[Any]:
    """Do the run of this slot, if it is ours to do."""
    if switch.off:
        return await disabled(engine, run.job)
    slot = Attempt(engine, run.job)
    try:
        found = await _begin(engine, run, slot)
        outcome = await perform(found) if isinstance(found, Attempt) else found
    except BaseException as error:
        await run.torn_open(engine, slot, error)
        raise
    await give_up_turn(run)
    return outcome


async def _begin(engine: Engine, run: Run, slot: Attempt) -> Attempt | Outcome[Any]:
    """The claim of the slot, with the turn; or the outcome that stands in the way."""
    await engine.ready()
    found = await acquire(slot)
    if not isinstance(found, Attempt):
        return _named(found)
    if run.overlaps:
        return found
    run.turn = LockedKey(engine, run.turn_job())
    other = await granted(run.turn)
    if isinstance(other, Attempt):
        return found
    run.turn = None
    if engine.stopping:
        await found.release()
        return Running(key=found.key.text, reason="stopping")
    return await _skip(found, other)


async def _skip(attempt: Attempt, other: Outcome[Any]) -> Outcome[Any]:
    """Settle the slot as skipped. It is no success, so it is FAILED; a person may still ask for it."""
    owner = other.owner if isinstance(other, Running) else ""
    why = f"another run of this schedule was still going{f' ({owner})' if owner else ''}"
    record = attempt.record
    validity = attempt.job.policy.window.validity(record.claimed_at)
    fail = Fail(attempt.key.id, record.token, record.nonce, SKIPPED, why, final=True, known=True, validity=validity)
    await attempt.settle(fail, RecordState.FAILED)
    return Failed(
        key=attempt.key.text,
        reason="skipped",
        attempt=record.attempt,
        token=record.token,
        error_type=SKIPPED,
        error=why,
        final=True,
    )


def _named(outcome: Outcome[Any]) -> Outcome[Any]:
    if isinstance(outcome, Failed) and outcome.error_type == SKIPPED:
        return replace(outcome, reason="skipped")
    return outcome


async def give_up_turn(run: Run) -> None:
    """The next run may begin. If the store does not answer now, it may once the turn's lease is over."""
    turn, run.turn = run.turn, None
    if turn is None or turn.over:
        return
    turn.hurry()
    try:
        await turn.settle(given_up(turn.record), RecordState.FREE)
    except StoreError:
        turn.abandon()


# ── runs that somebody else's scheduler starts ──────────────────────────────────────────────────────────────────

MakeJob = Callable[[int], Job]
"""The job of a slot."""


async def tick(engine: Engine, schedule: Schedule, slot: int | None, job: MakeJob, *, rerun: bool) -> Outcome[Any]:
    """The run that a fire is for: of this slot, or of the one that it means by the store's clock."""
    await engine.ready()
    found = await meant(engine, schedule, slot, rerun=rerun)
    if not isinstance(found, int):
        engine.emit("skipped", schedule.turn if slot is None else schedule.key(slot), reason=found.reason)
        return found
    return await run_slot(engine, Run(schedule, found, job(found)))


async def meant(engine: Engine, schedule: Schedule, slot: int | None, *, rerun: bool) -> int | Outcome[Any]:
    """The slot, or why a fire for it comes at the wrong time."""
    timeout, slots = schedule.policy.call_timeout, schedule.slots
    key = schedule.turn if slot is None else schedule.key(slot)
    answer = (await engine.store.read([key.id], timeout=timeout))[0]
    if slot is None:
        slot = schedule.meant_by(answer.now)
        if slot is None:
            return Stale(key=schedule.name, reason="no slot yet")
        key = schedule.key(slot)
    if rerun:
        await ask_again(engine, schedule, slot)
    elif slot - answer.now > slots.early:
        return Stale(key=key.text, reason="too early")
    elif answer.now - slot > slots.catch_up_age:  # its record may be gone, so that it could run twice
        return Stale(key=key.text, reason="too late")
    return slot


async def ask_again(engine: Engine, schedule: Schedule, slot: int) -> None:
    """Let a slot that failed be run once more. Of several who ask for it at once, one gets it."""
    id, timeout = schedule.key(slot).id, schedule.policy.call_timeout
    record = (await engine.store.read([id], timeout=timeout))[0].record
    if record is not None and record.state is RecordState.FAILED:
        request = Resolve(id, record.token, Resolution.NOT_APPLIED, state_seen=RecordState.FAILED)
        await engine.store.settle([request], timeout=timeout)


async def enter(
    engine: Engine,
    schedule: Schedule,
    slot: int | None,
    job: MakeJob,
    begun: Callable[[Run, Attempt], None],
    *,
    rerun: bool,
) -> None:
    """As `tick`, for a block that does the work itself. Raises what stands in the way.

    `begun` gets the run and its claim before that is asked for: from then on, whatever interrupts us, the block can
    call `refused`.
    """
    await engine.ready()
    found = await meant(engine, schedule, slot, rerun=rerun)
    if not isinstance(found, int):
        raise NotAcquired(f"this fire is {found.reason}", key=found.key, hint=OF_FIRES.get(found.reason))
    run = Run(schedule, found, job(found))
    attempt = unentered(engine, run.job)
    begun(run, attempt)
    if isinstance(attempt, Unclaimed):
        attempt.__enter__()
        return
    outcome = await _begin(engine, run, attempt)
    if not isinstance(outcome, Attempt):
        raise refusal(outcome)
    attempt.__enter__()
    settled = await ask_first(attempt) if attempt.record.ask_first else None
    if settled is not None:
        raise refusal(settled)
    attempt.begin()


async def refused(attempt: Attempt, run: Run, error: BaseException) -> None:
    """`enter` raised, or what followed it: the block does not begin."""
    attempt.begun = False
    if isinstance(attempt, Unclaimed):
        attempt.leave()
    else:
        await run.torn_open(attempt.engine, attempt, error)


async def end(attempt: Attempt, run: Run, error: BaseException | None) -> None:
    """End the run of a block, and its turn, whatever happened inside."""
    try:
        await leave(attempt, error)
    except BaseException as interrupt:
        await left(attempt, error, interrupt)
        await give_up_turn(run)
        raise
    await give_up_turn(run)
