"""Become the owner of a key, or learn why not.

Ask the store once. If somebody else is at it and the policy says wait, ask again with growing, jittered pauses, woken
early where the store can; the same question also takes over when that owner fails or falls silent.
"""

from __future__ import annotations

from onceward.errors import ClaimError, Reentrant, StoreError, VersionSkew
from onceward.model.fingerprint import differing
from onceward.model.outcome import Failed, Mismatch, Outcome, Parked, Replayed, Running
from onceward.model.policy import SECOND
from onceward.model.record import Answer, ClaimRequest, Record, Release, Verdict
from onceward.ports import Notifies

from .engine import Engine
from .held import Held, current
from .job import Job

TRIES = 3  # a lost reply is repeated with the same nonce; a store that is down must still fail quickly
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.5  # a thousand waiters then ask two thousand times a second at most


async def acquire(engine: Engine, job: Job) -> Held | Outcome[object]:
    """The claim, or the outcome that stands in its way."""
    await engine.ready()
    refuse_reentry(engine, job)
    since = engine.world.monotonic()
    answer = await ask(engine, job, job.request(engine.world.nonce(), engine.owner()))
    waited = answer.verdict is Verdict.RUNNING and job.policy.on_running == "wait"
    if waited:
        since, answer = await wait(engine, job)
    if answer.verdict is Verdict.ACQUIRED and answer.record is not None:
        return await take(engine, job, answer.record, since)
    return outcome_of(engine, job, answer, waited=waited)


async def ask(engine: Engine, job: Job, request: ClaimRequest) -> Answer:
    """One claim. Repeated with the same nonce if no reply came, so that our own grant is recognised as ours."""
    for left in reversed(range(TRIES)):
        try:
            answers, cancelled = await engine.world.finish(
                engine.store.claim([request], timeout=job.policy.call_timeout)
            )
        except StoreError:
            if not left:
                raise
            await engine.world.sleep(FIRST_PAUSE * (1 + engine.world.jitter()))
            continue
        answer = answers[0]
        if cancelled is not None:
            await give_back(engine, job, answer, request.nonce)
            raise cancelled
        if answer.verdict is not Verdict.SETTLED:
            return answer
        break
    # Our own nonce was granted, answered into the void, and settled by somebody since: ask anew.
    return await ask(engine, job, job.request(engine.world.nonce(), engine.owner()))


async def wait(engine: Engine, job: Job) -> tuple[float, Answer]:
    """Ask again until it is ours, or done, or the time to wait is over."""
    world, store = engine.world, engine.store
    deadline = world.monotonic() + job.policy.wait / SECOND
    gate = world.gate()
    stop = store.watch(job.key.id, gate.open) if isinstance(store, Notifies) else None
    pause = FIRST_PAUSE
    try:
        while True:
            since = world.monotonic()
            answer = await ask(engine, job, job.request(world.nonce(), engine.owner()))
            left = deadline - world.monotonic()
            if answer.verdict is not Verdict.RUNNING or left <= 0 or engine.stopping:
                return since, answer
            await gate.wait(min(left, pause * (0.5 + world.jitter() / 2), lease_left(answer) + FIRST_PAUSE))
            pause = min(pause * 1.6, LONGEST_PAUSE)
    finally:
        if stop is not None:
            stop()


async def take(engine: Engine, job: Job, record: Record, since: float) -> Held:
    """Hand the lease to the keeper. If that fails nothing was begun, so the key is given back."""
    try:
        hold = engine.keeper.take(record, job.policy.lease, since)
    except BaseException as error:
        await release(engine, job, record)
        if isinstance(error, RuntimeError):
            raise ClaimError(
                f"no thread can be had to keep the lease alive ({error}); nothing was begun", key=job.key.text
            ) from error
        raise
    engine.tell("acquired", job.key, record, reason="taken over" if record.attempt > 1 else "")
    return Held(engine, job, record, hold)


async def give_back(engine: Engine, job: Job, answer: Answer, nonce: bytes) -> None:
    """The caller left while we asked: a grant that nobody uses must not hold the key for a whole lease."""
    record = answer.record
    if answer.verdict is Verdict.ACQUIRED and record is not None and record.nonce == nonce:
        await release(engine, job, record)


async def release(engine: Engine, job: Job, record: Record) -> None:
    await engine.store.settle([Release(record.id, record.token, record.nonce)], timeout=job.policy.call_timeout)
    engine.tell("released", job.key, record)


def refuse_reentry(engine: Engine, job: Job) -> None:
    held = current()
    if held is not None and held.covers(engine, job.key.id):
        raise Reentrant(
            "this key is already held by the call that makes this one; waiting for it would never end",
            key=job.key.text,
            hint="give the inner work a key of its own",
        )


def outcome_of(engine: Engine, job: Job, answer: Answer, *, waited: bool = False) -> Outcome[object]:
    """What a claim that was not granted means to the caller. Every skip is told, so that it can be explained later."""
    outcome = _outcome(job, answer, waited=waited)
    engine.tell(
        "mismatch" if isinstance(outcome, Mismatch) else "skipped", job.key, answer.record, reason=outcome.reason
    )
    return outcome


def _outcome(job: Job, answer: Answer, *, waited: bool) -> Outcome[object]:
    record = answer.record
    text = job.key.text
    if record is None or answer.verdict is Verdict.SKEW:
        raise VersionSkew(
            "the record was written by a newer Onceward; left alone", key=text, hint="upgrade this process"
        )
    match answer.verdict:
        case Verdict.REPLAY:
            declared = not job.policy.store_result
            value = job.codec.decode(record.result, record.id) if record.result is not None and not declared else None
            stored = record.stored and record.result is not None
            return Replayed(
                key=text, value=value, attempt=record.attempt, token=record.token, stored=stored, declared=declared
            )
        case Verdict.RUNNING:
            return Running(
                key=text,
                attempt=record.attempt,
                token=record.token,
                retry_after=lease_left(answer),
                owner=record.owner,
                waited=waited,
            )
        case Verdict.MISMATCH:
            names = differing(record.arguments, job.arguments) if record.arguments and job.arguments else ()
            return Mismatch(key=text, attempt=record.attempt, token=record.token, arguments=names)
        case Verdict.FAILED:
            due = None if record.retry_at is None else max(0, record.retry_at - answer.now) / SECOND
            return Failed(
                key=text,
                attempt=record.attempt,
                token=record.token,
                error_type=record.error_type,
                error=record.error,
                final=record.final or due is None,
                retry_after=due,
            )
        case _:
            return Parked(
                key=text, attempt=record.attempt, token=record.token, error_type=record.error_type, error=record.error
            )


def lease_left(answer: Answer) -> float:
    """Seconds until the owner's lease ends, by the store's clock. A missing lease never ends by itself."""
    record = answer.record
    if record is None or record.lease_until is None:
        return 3600.0
    return max(0, record.lease_until - answer.now) / SECOND
