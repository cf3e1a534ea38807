"""Become the owner of a key, or learn why not.

Ask the store once. If somebody else is at it and the policy says wait, ask again with growing, jittered pauses, woken
early where the store can; the same question also takes over when that owner fails or falls silent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from onceward.errors import ClaimError, Reentrant, ResultError, StoreError, StoreUnavailable, VersionSkew
from onceward.keys.fingerprint import differing
from onceward.protocol.capabilities import NotifiesChanges
from onceward.protocol.cells import attempts_used_up
from onceward.protocol.outcome import Failed, Mismatch, Outcome, Parked, Running
from onceward.protocol.policy import SECOND
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Release, Verdict
from onceward.protocol.unstored import unstored_reason

from .attempt import Attempt, current
from .engine import Engine
from .job import Job
from .joined import blocks_itself, is_in_joined_job
from .lookup import replayed_outcome

TRIES_LEFT = (2, 1, 0)  # a lost reply is repeated with the same nonce; a store that is down must still fail quickly
FIRST_PAUSE = 0.005
ACQUIRED, SETTLED = Verdict.ACQUIRED, Verdict.SETTLED
MAX_NAMED_ARGUMENTS = 10  # arguments in one line of a log
LONGEST_PAUSE = 0.5  # a thousand waiters then ask two thousand times a second at most


async def acquire(attempt: Attempt) -> Attempt | Outcome[object]:
    """The claim, or the outcome that stands in its way. The engine is ready."""
    engine = attempt.engine
    if engine.answer is not None:
        refusal = acquire_inline(attempt, engine.answer)
        return attempt if refusal is None else await wait_or_refuse(attempt, refusal)
    return await await_answer(attempt, engine.shield(send_claim(attempt)))


def send_claim(attempt: Attempt) -> Any:
    """Ask the store, once: what is to be awaited."""
    engine = attempt.engine
    if current() is not None:
        refuse_reentry(engine, attempt.job)
    request = attempt.request()
    attempt.since = engine.runtime.monotonic()
    return engine.store.claim([request], timeout=attempt.job.policy.call_timeout)


def take_if_acquired(attempt: Attempt, answer: Answer) -> Attempt | None:
    """The claim, if this says so and nothing else has to be thought of."""
    if answer.verdict is not ACQUIRED or answer.record is None:
        return None
    attempt.record, attempt.acquired = answer.record, True  # as `apply_answer` does
    return start_heartbeat(attempt, attempt.since)


async def await_answer(
    attempt: Attempt, brought: Awaitable[tuple[Sequence[Answer], BaseException | None]]
) -> Attempt | Outcome[object]:
    """What comes of a claim that was sent."""
    try:
        answers, cancelled = await brought
        answer = on_answer(attempt, answers[0], cancelled)
    except StoreError as error:
        answer = await repeat_claim(attempt, attempt.request(attempt.nonce), error)
    if answer is None:
        answer = await request_claim(attempt)
    return (
        start_heartbeat(attempt, attempt.since) if answer.verdict is ACQUIRED else await wait_or_refuse(attempt, answer)
    )


async def handle_refusal(attempt: Attempt, answer: Answer) -> Attempt | Outcome[object]:
    """As `await_answer`, where the answer is known: it is not ours."""
    found = on_answer(attempt, answer, None)
    if found is None:
        found = await request_claim(attempt)
        if found.verdict is ACQUIRED:
            return start_heartbeat(attempt, attempt.since)
    return await wait_or_refuse(attempt, found)


def acquire_inline(attempt: Attempt, answer_to: Callable[[AnyRequest], Answer]) -> Answer | None:
    """As `acquire`, where no reply can be lost on the way. None: it is ours; else the answer that says no."""
    engine = attempt.engine
    if current() is not None:
        refuse_reentry(engine, attempt.job)
    monotonic = engine.runtime.monotonic
    since = monotonic()
    answer = answer_to(attempt.request())
    if answer.verdict is not ACQUIRED or answer.record is None:
        attempt.apply_answer(answer)
        return answer
    attempt.record, attempt.acquired = answer.record, True  # as `apply_answer` does
    start_heartbeat(attempt, since)
    return None


async def wait_or_refuse(attempt: Attempt, answer: Answer) -> Attempt | Outcome[object]:
    """Not granted: wait, if that is the policy, and learn why."""
    waited = answer.verdict is Verdict.RUNNING and attempt.job.policy.on_running == "wait"
    if waited:
        refuse_reentry(attempt.engine, attempt.job)
        since, answer = await wait_for_claim(attempt)
        if answer.verdict is ACQUIRED:
            return start_heartbeat(attempt, since)
    return await refusal_outcome(attempt.engine, attempt.job, answer, waited=waited)


async def request_claim(attempt: Attempt) -> Answer:
    """One claim, heard by the store."""
    engine, timeout = attempt.engine, attempt.job.policy.call_timeout
    while True:
        request = attempt.request()
        try:
            answers, cancelled = await engine.shield(engine.store.claim([request], timeout=timeout))
            answer = on_answer(attempt, answers[0], cancelled)
        except StoreError as error:
            answer = await repeat_claim(attempt, request, error)
        if answer is not None:
            return answer


async def repeat_claim(attempt: Attempt, request: ClaimRequest, error: StoreError) -> Answer | None:
    """No reply came: repeated with the same nonce, so that our own grant is recognised as ours."""
    engine, timeout = attempt.engine, attempt.job.policy.call_timeout
    for left in TRIES_LEFT:
        if isinstance(error, StoreUnavailable) and blocks_itself(engine):
            raise StoreUnavailable(
                f"it waits for a transaction that is open around this call ({error})",
                key=attempt.key.text,
                hint="inside of within() use tx.run or tx.call; or commit before this call",
            ) from error
        if not left:
            break
        await engine.runtime.sleep(FIRST_PAUSE * (1 + engine.runtime.jitter()))
        try:
            answers, cancelled = await engine.shield(engine.store.claim([request], timeout=timeout))
            return on_answer(attempt, answers[0], cancelled)
        except StoreError as still:
            error = still
    try:
        raise error.of(attempt.key.text)
    finally:
        del error  # its traceback leads here: from here none may lead back to it


def on_answer(attempt: Attempt, answer: Answer, cancelled: BaseException | None) -> Answer | None:
    """What the store said. None: it granted our nonce, answered into the void, and somebody settled it: ask anew."""
    if answer.verdict is ACQUIRED and answer.record is not None:
        attempt.record, attempt.acquired = answer.record, True  # as `apply_answer` does
    else:
        attempt.apply_answer(answer)
    if cancelled is not None:
        raise cancelled
    return None if answer.verdict is SETTLED else answer


async def wait_for_claim(attempt: Attempt) -> tuple[float, Answer]:
    """Ask again until it is ours, or done, or the time to wait is over."""
    engine, job = attempt.engine, attempt.job
    runtime, store = engine.runtime, engine.store
    deadline = runtime.monotonic() + job.policy.wait / SECOND
    gate = runtime.gate()
    stop = store.watch(job.key.id, gate.open) if isinstance(store, NotifiesChanges) else None
    pause = FIRST_PAUSE
    try:
        while True:
            since = runtime.monotonic()
            answer = await request_claim(attempt)
            left = deadline - runtime.monotonic()
            if answer.verdict is not Verdict.RUNNING or left <= 0 or engine.stopping:
                return since, answer
            lease = lease_left(answer)
            lapse = left if lease is None else lease + FIRST_PAUSE
            await gate.wait(min(left, lapse, pause * (0.5 + runtime.jitter() / 2)))
            pause = min(pause * 1.6, LONGEST_PAUSE)
    finally:
        if stop is not None:
            stop()


def start_heartbeat(attempt: Attempt, since: float) -> Attempt:
    """Hand the lease to the keeper."""
    engine = attempt.engine
    try:
        engine.heartbeat.take(attempt, since)
    except RuntimeError as error:
        raise ClaimError(
            f"no thread can be had to keep the lease alive ({error}); nothing was begun", key=attempt.key.text
        ) from error
    wants = engine.wants
    if wants("acquired"):
        record = attempt.record
        engine.emit_wanted("acquired", attempt.key, record, reason="taken over" if record.attempt > 1 else "")
    return attempt


async def release_unused(engine: Engine, asked: Sequence[Attempt]) -> None:
    """Nothing was begun: what we may have been granted must not hold its key for a whole lease.

    Runs to its end whatever comes meanwhile, and raises nothing: the caller is leaving for a reason of its own.
    """
    for one in asked:
        engine.heartbeat.drop(one)
    asked = [one for one in asked if one.nonce]
    if asked:
        try:
            await engine.shield(_release(engine, asked))
        except StoreError:
            release_later(engine, asked)


def release_later(engine: Engine, asked: Sequence[Attempt]) -> None:
    """The store does not answer: the keeper asks again, for those whom we may have been granted."""
    for one in asked:
        if one.nonce:
            engine.heartbeat.reconcile(one, one.key.id, one.lease)


async def _release(engine: Engine, asked: Sequence[Attempt]) -> None:
    """All in one call. Whose answer did not reach us is looked up: the nonce shows whether the grant is ours.

    What is not there may still come: an interrupt can strike while the claim waits in a lane, or is on its way.
    """
    timeout = min(one.job.policy.call_timeout for one in asked)
    unsure = [one.job.key.id for one in asked if not one.acquired]
    answers = await engine.store.read(unsure, timeout=timeout) if unsure else []
    found = {id: answer.record for id, answer in zip(unsure, answers, strict=True)}
    acquired = [
        (one, record)
        for one in asked
        if (record := one.record if one.acquired else found[one.job.key.id]) is not None
        and record.nonce == one.nonce
        and record.state is RecordState.PENDING
        and not record.released
    ]
    if engine.answer is None:
        known = [one for one, _ in acquired]
        release_later(engine, [one for one in asked if not (one.acquired or one in known)])
    if acquired:
        releases = [Release(record.id, record.token, record.nonce) for _, record in acquired]
        await engine.store.settle(releases, timeout=timeout)
    for one, record in acquired:
        engine.emit("released", one.job.key, record)


def refuse_reentry(engine: Engine, job: Job) -> None:
    attempt = current()
    if (attempt is not None and attempt.covers(engine, job.key.id)) or is_in_joined_job(engine, job.key.id):
        raise Reentrant(
            "this key is already held by the call that makes this one; waiting for it would never end",
            key=job.key.text,
            hint="give the inner work a key of its own",
        )


async def refusal_outcome(engine: Engine, job: Job, answer: Answer, *, waited: bool = False) -> Outcome[object]:
    """What a claim that was not granted means to the caller. Every skip is told, so that it can be explained later."""
    outcome = await _refusal_outcome(engine, job, answer, waited=waited)
    if isinstance(outcome, Mismatch):
        engine.emit("mismatch", job.key, answer.record, reason=outcome.reason, error=_mismatch_text(outcome))
    else:
        engine.emit("skipped", job.key, answer.record, reason=outcome.reason)
    if waited and job.policy.wait and isinstance(outcome, Running) and not engine.stopping:
        engine.emit("claim_failed", job.key, answer.record, reason="wait limit")
    return outcome


def _mismatch_text(outcome: Mismatch[object]) -> str:
    """For whoever reads the log: names of arguments, never their values, and what to do."""
    names = ", ".join(outcome.arguments[:MAX_NAMED_ARGUMENTS]) + (
        " and more" if len(outcome.arguments) > MAX_NAMED_ARGUMENTS else ""
    )
    which = f", which differs in: {names}" if names else ""
    return (
        f"the key was used before with another payload{which}; nothing was run → use a new key for new work, "
        "or declare which arguments belong to the fingerprint"
    )


async def _refusal_outcome(engine: Engine, job: Job, answer: Answer, *, waited: bool) -> Outcome[object]:
    record = answer.record
    text, reasons = job.key.text, job.policy.reasons
    if record is None or answer.verdict is Verdict.SKEW:
        raise VersionSkew(
            "the record was written by a newer Onceward; left alone", key=text, hint="upgrade this process"
        )
    match answer.verdict:
        case Verdict.REPLAY:
            value = None
            if record.result is not None and job.policy.store_result:
                try:
                    value = await engine.decode(job.codec, record.result, record.id)
                except ResultError as error:
                    raise error.of(text) from error.__cause__
            outcome = replayed_outcome(job, record, value)
            return outcome if outcome.stored else replace(outcome, unstored=unstored_reason(record.note))
        case Verdict.RUNNING:
            return Running(
                key=text,
                reason=reasons.running,
                attempt=record.attempt,
                token=record.token,
                retry_after=lease_left(answer),
                owner=record.owner,
                waited=waited,
            )
        case Verdict.MISMATCH:
            names = differing(record.arguments, job.arguments) if record.arguments and job.arguments else ()
            return Mismatch(
                key=text, reason=reasons.mismatch, attempt=record.attempt, token=record.token, arguments=names
            )
        case Verdict.FAILED:
            given_up = record.retry_at is None or attempts_used_up(record.attempt, job.policy.max_attempts)
            due = None if given_up else max(0, (record.retry_at or 0) - answer.now) / SECOND
            return Failed(
                key=text,
                reason=reasons.failed,
                attempt=record.attempt,
                token=record.token,
                error_type=record.error_type,
                error=record.error,
                final=record.final or given_up,
                retry_after=due,
            )
        case _:
            return Parked(
                key=text,
                reason=reasons.parked,
                attempt=record.attempt,
                token=record.token,
                error_type=record.error_type,
                error=record.error,
            )


def lease_left(answer: Answer) -> float | None:
    """Seconds until the owner's lease ends, by the store's clock. None: there is no lease that could end."""
    record = answer.record
    if record is None or record.lease_until is None:
        return None
    return max(0, record.lease_until - answer.now) / SECOND
