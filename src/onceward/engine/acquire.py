"""Acquire a key, or find out why that is not possible.

Send the claim once. If another worker is already processing the key and the policy says wait, repeat it with growing,
jittered pauses. Stores that can notify end a pause early. Such a claim also takes over if that worker fails or crashes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from msgspec.structs import replace

from onceward.errors import ClaimError, Reentrant, ResultError, StoreError, StoreUnavailable, VersionSkew
from onceward.keys.fingerprint import differing_arguments
from onceward.protocol.cells import attempts_used_up
from onceward.protocol.outcome import Failed, Mismatch, Outcome, Parked, Running
from onceward.protocol.policy import SECOND
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, ClaimRequest, Release, Verdict
from onceward.protocol.unstored import unstored_reason

from .attempt import Attempt, current
from .engine import Engine
from .job import Job
from .joined import blocks_itself, is_in_joined_job
from .lookup import replayed_outcome

TRIES_LEFT = (2, 1, 0)  # a claim without a reply is sent again, same nonce; a store that is down still fails quickly
FIRST_PAUSE = 0.005
ACQUIRED, SETTLED = Verdict.ACQUIRED, Verdict.SETTLED
MAX_NAMED_ARGUMENTS = 10  # listed in one log line
LONGEST_PAUSE = 0.5  # with jitter, a thousand waiters then send two to four thousand claims a second


async def acquire(attempt: Attempt) -> Attempt | Outcome[object]:
    """Return the attempt if it acquired its key, otherwise the outcome that explains why not. Needs an open store."""
    return await await_answer(attempt, attempt.engine.shield(send_claim(attempt)))


def send_claim(attempt: Attempt) -> Any:
    """Send the claim once. Return what is to be awaited."""
    engine = attempt.engine
    if current() is not None:
        refuse_reentry(engine, attempt.job)
    request = attempt.request()
    attempt.since = engine.runtime.monotonic()
    return engine.store.claim([request], timeout=attempt.job.policy.call_timeout)


def take_if_acquired(attempt: Attempt, answer: Answer) -> Attempt | None:
    """Start the heartbeat and return the attempt, if the answer says ACQUIRED."""
    if answer.verdict is not ACQUIRED or answer.record is None:
        return None
    attempt.record, attempt.acquired = answer.record, True  # as `apply_answer` does
    return start_heartbeat(attempt, attempt.since)


async def await_answer(
    attempt: Attempt, sent: Awaitable[tuple[Sequence[Answer], BaseException | None]]
) -> Attempt | Outcome[object]:
    """Wait for the answer to a claim that was sent, and act on it."""
    try:
        answers, cancelled = await sent
        answer = on_answer(attempt, answers[0], cancelled)
    except StoreError as error:
        answer = await repeat_claim(attempt, attempt.request(attempt.nonce), error)
    if answer is None:
        answer = await request_claim(attempt)
    return (
        start_heartbeat(attempt, attempt.since) if answer.verdict is ACQUIRED else await wait_or_refuse(attempt, answer)
    )


async def handle_refusal(attempt: Attempt, answer: Answer) -> Attempt | Outcome[object]:
    """Act on an answer that did not grant the claim."""
    found = on_answer(attempt, answer, None)
    if found is None:
        found = await request_claim(attempt)
        if found.verdict is ACQUIRED:
            return start_heartbeat(attempt, attempt.since)
    return await wait_or_refuse(attempt, found)


async def wait_or_refuse(attempt: Attempt, answer: Answer) -> Attempt | Outcome[object]:
    """Handle a refused claim: wait, if the policy says so, otherwise return the outcome."""
    waited = answer.verdict is Verdict.RUNNING and attempt.job.policy.on_running == "wait"
    if waited:
        refuse_reentry(attempt.engine, attempt.job)
        since, answer = await wait_for_claim(attempt)
        if answer.verdict is ACQUIRED:
            return start_heartbeat(attempt, since)
    return await refusal_outcome(attempt.engine, attempt.job, answer, waited=waited)


async def request_claim(attempt: Attempt) -> Answer:
    """Send a claim. If the store says that it was settled already, send a new one."""
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
    """Repeat a claim that got no reply with the same nonce, so that the store recognises it if it was granted."""
    engine, timeout = attempt.engine, attempt.job.policy.call_timeout
    for left in TRIES_LEFT:
        if isinstance(error, StoreUnavailable) and blocks_itself(engine):
            raise StoreUnavailable(
                f"the store is blocked by a transaction that is open around this call ({error})",
                key=attempt.key.text,
                hint="inside within() use tx.run or tx.call; or commit before this call",
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
        raise error.with_key(attempt.key.text)
    finally:
        del error  # its traceback refers to this frame: avoid a reference cycle


def on_answer(attempt: Attempt, answer: Answer, cancelled: BaseException | None) -> Answer | None:
    """Apply the store's answer. None: an earlier claim with our nonce was granted and then settled; claim again."""
    if answer.verdict is ACQUIRED and answer.record is not None:
        attempt.record, attempt.acquired = answer.record, True  # as `apply_answer` does
    else:
        attempt.apply_answer(answer)
    if cancelled is not None:
        raise cancelled
    return None if answer.verdict is SETTLED else answer


async def wait_for_claim(attempt: Attempt) -> tuple[float, Answer]:
    """Repeat the claim until it is acquired, the key is settled, the time to wait has passed, or the client stops."""
    engine, job = attempt.engine, attempt.job
    runtime, store = engine.runtime, engine.store
    deadline = runtime.monotonic() + job.policy.wait / SECOND
    gate = runtime.gate()
    stop = None if store.notifications is None else store.notifications.watch(job.key.id, gate.open)
    pause = FIRST_PAUSE
    try:
        while True:
            since = runtime.monotonic()
            answer = await request_claim(attempt)
            left = deadline - runtime.monotonic()
            if answer.verdict is not Verdict.RUNNING or left <= 0 or engine.stopping:
                return since, answer
            lease = lease_left(answer)
            expiry = left if lease is None else lease + FIRST_PAUSE
            await gate.wait(min(left, expiry, pause * (0.5 + runtime.jitter() / 2)))
            pause = min(pause * 1.6, LONGEST_PAUSE)
    finally:
        if stop is not None:
            stop()


def start_heartbeat(attempt: Attempt, since: float) -> Attempt:
    """Register the lease with the heartbeat."""
    engine = attempt.engine
    try:
        engine.heartbeat.take(attempt, since)
    except RuntimeError as error:
        raise ClaimError(
            f"the heartbeat thread cannot be started ({error}); the work was not begun", key=attempt.key.text
        ) from error
    wants = engine.wants
    if wants("acquired"):
        record = attempt.record
        reason = "" if record.attempt == 1 else "retry" if record.error_type else "taken over"
        engine.emit_wanted("acquired", attempt.key, record, reason=reason)
    return attempt


async def release_unused(engine: Engine, attempts: Sequence[Attempt]) -> None:
    """Release claims whose work was not begun, so that their keys are not held for a whole lease.

    It runs to its end even if the caller is cancelled, and raises nothing: the caller has its own error to raise.
    """
    for one in attempts:
        engine.heartbeat.drop(one)
    attempts = [one for one in attempts if one.nonce]
    if attempts:
        try:
            await engine.shield(_release(engine, attempts))
        except StoreError:
            release_later(engine, attempts)


def release_later(engine: Engine, attempts: Sequence[Attempt]) -> None:
    """Let the heartbeat thread release claims that may have been granted: the store does not answer now."""
    for one in attempts:
        if one.nonce:
            engine.heartbeat.reconcile(one, one.key.id, one.lease)


async def _release(engine: Engine, attempts: Sequence[Attempt]) -> None:
    """Release all of them in one call. For claims without an answer, read the record: its nonce shows if it is ours.

    A claim that is not there yet may still arrive, if the interrupt came while it was queued or being sent.
    """
    timeout = min(one.job.policy.call_timeout for one in attempts)
    unsure = [one.job.key.id for one in attempts if not one.acquired]
    answers = await engine.store.read(unsure, timeout=timeout) if unsure else []
    found = {id: answer.record for id, answer in zip(unsure, answers, strict=True)}
    acquired = [
        (one, record)
        for one in attempts
        if (record := one.record if one.acquired else found[one.job.key.id]) is not None
        and record.nonce == one.nonce
        and record.state is RecordState.PENDING
        and not record.released
    ]
    if not engine.store.inline:  # an inline store has no call on its way
        known = [one for one, _ in acquired]
        release_later(engine, [one for one in attempts if not (one.acquired or one in known)])
    if acquired:
        releases = [Release(record.id, record.token, record.nonce) for _, record in acquired]
        await engine.store.settle(releases, timeout=timeout)
    for one, record in acquired:
        engine.emit("released", one.job.key, record)


def refuse_reentry(engine: Engine, job: Job) -> None:
    attempt = current()
    if (attempt is not None and attempt.covers(engine, job.key.id)) or is_in_joined_job(engine, job.key.id):
        raise Reentrant(
            "an outer call in this call chain already holds this key; waiting for it would never end",
            key=job.key.text,
            hint="give the inner work its own key",
        )


async def refusal_outcome(engine: Engine, job: Job, answer: Answer, *, waited: bool = False) -> Outcome[object]:
    """Return the outcome of a refused claim. Emit an event for each."""
    outcome = await _refusal_outcome(engine, job, answer, waited=waited)
    if isinstance(outcome, Mismatch):
        engine.emit("mismatch", job.key, answer.record, reason=outcome.reason, error=_mismatch_text(outcome))
    else:
        engine.emit("skipped", job.key, answer.record, reason=outcome.reason)
    if waited and job.policy.wait and isinstance(outcome, Running) and not engine.stopping:
        engine.emit("claim_failed", job.key, answer.record, reason="wait limit")
    return outcome


def _mismatch_text(outcome: Mismatch[object]) -> str:
    """Return the log text of a mismatch: the names of the arguments, never their values, and how to fix it."""
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
                    raise error.with_key(text) from error.__cause__
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
            names = differing_arguments(record.arguments, job.arguments) if record.arguments and job.arguments else ()
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
    """Return the seconds until the owner's lease ends, by the store's clock. None: there is no lease."""
    record = answer.record
    if record is None or record.lease_until is None:
        return None
    return max(0, record.lease_until - answer.now) / SECOND
