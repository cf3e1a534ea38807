"""Claim keys, and wait for keys that other workers own.

Claims are sent in one call. If another worker owns a key and the policy says wait, the claim is repeated with growing,
jittered pauses. Stores that can notify end a pause early. If that worker fails or crashes, the next claim takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.errors import (
    ClaimError,
    RecordBroken,
    Reentrant,
    ResultError,
    RetryTransaction,
    StoreError,
    StoreUnavailable,
    VersionSkew,
)
from onceward.keys.key import Key
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import SECOND
from onceward.protocol.requests import Answer, ClaimRequest, Verdict

from .abandon import release_later
from .attempt import OWNED, REFUSED, UNKNOWN, WAITING, Attempt, current
from .engine import YIELD_EVERY, Engine
from .job import Job
from .joined import blocks_itself, current_job, is_in_joined_job
from .refusal import lease_left, refusal_outcome
from .retry import RetryLimit, ask_again

ACQUIRED, RUNNING, SETTLED = Verdict.ACQUIRED, Verdict.RUNNING, Verdict.SETTLED
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.5  # with jitter, a thousand waiters then send two to four thousand claims a second

QUIET_WAIT = 1.0  # a call that waits longer is reported

KEY_ERRORS = (ResultError, VersionSkew, ClaimError, RecordBroken)
"""Errors that concern one key, and not the other keys of the batch."""

Refusal = Outcome[Any] | Exception | None
"""Why an attempt did not get its key: the outcome, or the error that concerns this key. None: it was not refused."""


async def acquire(engine: Engine, attempts: Sequence[Attempt], *, may_wait: bool = True) -> list[Refusal]:
    """Claim the keys of these attempts in one call. Without a refusal, an attempt is OWNED, or WAITING for its owner.

    If the store does not answer, all of them are UNKNOWN, and this function raises the store's error. If a record is
    damaged, its attempt is UNKNOWN, and its refusal is the error: the other keys are claimed.
    """
    blocked = _refuse_reentrant(engine, attempts) if current() or current_job.get() else None
    if blocked is not None and any(blocked):
        free = [one for one in attempts if one.state is not REFUSED]
        found = iter(await acquire(engine, free, may_wait=may_wait)) if free else iter(())
        return [next(found) if error is None else error for error in blocked]
    requests = [one.claim_request() for one in attempts]
    answers: Sequence[Answer | StoreError]
    try:
        answers = await _send(engine, attempts, requests)
    except RecordBroken as error:
        answers = [error] if len(attempts) == 1 else await _claim_each(engine, attempts, requests)
    if engine.stopping:  # `stop` was called after the claims were sent: the caller releases those that were granted
        engine.refuse_to_claim()
    refusals: list[Refusal] = [None] * len(attempts)
    for index, one in enumerate(attempts):
        if one.state is not OWNED:
            answer = answers[index]
            if isinstance(answer, StoreError):
                refusals[index] = answer
                continue
            refusals[index] = await _wait_or_refuse(one, answer, may_wait=may_wait)
            if index % YIELD_EVERY == YIELD_EVERY - 1:
                await engine.runtime.sleep(0)
    return refusals


async def _wait_or_refuse(attempt: Attempt, answer: Answer, *, may_wait: bool) -> Refusal:
    """End a claim that was not granted, or let it wait for the key."""
    if answer.verdict is RUNNING and may_wait and attempt.job.policy.on_running == "wait":
        attempt.move(WAITING)
        return None
    if answer.verdict is not SETTLED:
        return await refuse(attempt, answer)
    attempt.move(WAITING)  # an earlier claim with this nonce was granted and has been settled since: claim again
    try:
        [refusal] = await acquire(attempt.engine, [attempt], may_wait=may_wait)
    except StoreError as error:  # only this key of the batch is affected
        return error
    return refusal


async def send_claims(engine: Engine, attempts: Sequence[Attempt]) -> Sequence[Answer]:
    """Send the claims in one call, apply the answers, and start the heartbeat of those that are OWNED now."""
    return await _send(engine, attempts, [one.claim_request() for one in attempts])


async def _send(engine: Engine, attempts: Sequence[Attempt], requests: Sequence[ClaimRequest]) -> Sequence[Answer]:
    """Do what `send_claims` does, with these requests.

    If one of several records is damaged, raise RecordBroken and leave all attempts CLAIMING: the caller sends the same
    requests again, each alone.
    """
    store, timeout = engine.store, attempts[0].job.policy.call_timeout
    since = engine.runtime.monotonic()
    cancelled: BaseException | None
    try:
        if engine.shields:
            answers, cancelled = await engine.shield(store.claim(requests, timeout=timeout))
        else:
            answers, cancelled = await store.claim(requests, timeout=timeout), None
    except BaseException as error:  # noqa: BLE001 (raised again, unless the store answers)
        answers, cancelled = await _claim_again(engine, attempts, requests, error)
    for one, answer in zip(attempts, answers, strict=True):
        if answer.verdict is ACQUIRED and answer.record is not None:
            one.record = answer.record
            one.move(OWNED)
        else:
            one.nonce = b""  # no claim of ours was granted
    if cancelled is not None:
        raise cancelled
    for one in attempts:
        if one.state is OWNED:
            start_heartbeat(one, since)
    return answers


async def _claim_each(
    engine: Engine, attempts: Sequence[Attempt], requests: Sequence[ClaimRequest]
) -> list[Answer | StoreError]:
    """Send each claim of a batch again alone, because a record of the batch is damaged. Return the answers and errors.

    The requests are the same: some stores have granted claims of the batch, and recognise them by their nonces. If the
    store stops answering, the remaining attempts get its error, and no further claim is sent.
    """
    answers: list[Answer | StoreError] = []
    for index, one in enumerate(attempts):
        try:
            answers += await _send(engine, [one], [requests[index]])
        except RecordBroken as error:
            answers.append(error)
        except StoreError as error:
            remaining = attempts[index + 1 :]
            if remaining:
                _no_answer(engine, remaining, error)
            return answers + [error] * (1 + len(remaining))
    return answers


async def _claim_again(
    engine: Engine, attempts: Sequence[Attempt], requests: Sequence[ClaimRequest], error: BaseException
) -> tuple[list[Answer], BaseException | None]:
    """Send the same claims again after an error."""
    store, timeout = engine.store, attempts[0].job.policy.call_timeout
    try:
        return await ask_again(lambda: store.claim(requests, timeout=timeout), error, RetryLimit(engine))
    except StoreError as failure:
        if isinstance(failure, RecordBroken) and len(attempts) > 1:
            raise
        raise _no_answer(engine, attempts, failure) from failure.__cause__


def _no_answer(engine: Engine, attempts: Sequence[Attempt], error: StoreError) -> StoreError:
    """Note that the store did not answer. Return the error to raise, or raise Stopping if the client was closed."""
    release_later(attempts)
    for one in attempts:
        one.move(UNKNOWN)
    if engine.closed:  # while the claims were sent: the store is not down, so no work may run without a claim
        engine.refuse_to_claim()
    for one in attempts:
        emit_no_answer(engine, one.key, error)
    if isinstance(error, StoreUnavailable) and blocks_itself(engine):
        return StoreUnavailable(
            f"a transaction that is open around this call blocks the store ({error})",
            key=attempts[0].key.text,
            hint="inside within() use tx.run or tx.call; or commit before this call",
        )
    return error.with_key(attempts[0].key.text)


def emit_no_answer(engine: Engine, key: Key, error: StoreError) -> None:
    """Emit the event of a claim that the store did not answer. RetryTransaction is an answer, and emits nothing."""
    if not isinstance(error, RetryTransaction):
        engine.emit("claim_failed", key, reason="no answer", error=type(error).__name__)


def start_heartbeat(attempt: Attempt, since: float) -> None:
    """Renew the lease from now on. `since` is when its claim was sent."""
    engine = attempt.engine
    try:
        engine.heartbeat.take(attempt, since)
    except RuntimeError as error:
        raise ClaimError(
            f"the heartbeat thread cannot be started ({error}); the work did not start", key=attempt.key.text
        ) from error
    wants = engine.wants
    if wants("acquired"):
        record = attempt.record
        reason = "" if record.attempt == 1 else "retry" if record.error_type else "taken over"
        engine.emit_wanted("acquired", attempt.key, record, reason=reason)
    history = engine.history
    if history is not None and (history.all or attempt.record.attempt > 1):
        history.claimed(attempt.record)


async def refuse(attempt: Attempt, answer: Answer, *, waited: bool = False) -> Outcome[Any] | Exception:
    """End a claim that was not granted. Return its outcome, or the error that concerns this key."""
    attempt.move(REFUSED)
    try:
        return await refusal_outcome(attempt.engine, attempt.job, answer, waited=waited)
    except KEY_ERRORS as error:
        return error


async def wait_for_key(attempt: Attempt) -> Refusal:
    """Repeat the claim until we own the key, it is settled, the time to wait has passed, or the client stops."""
    engine, job = attempt.engine, attempt.job
    runtime, notifications = engine.runtime, engine.store.notifications
    now = runtime.monotonic()
    deadline, report_at = now + job.policy.wait / SECOND, now + QUIET_WAIT
    gate = runtime.gate()
    stop = None if notifications is None else notifications.watch(job.key.id, gate.open)
    pause = FIRST_PAUSE
    engine.claims_in_flight.add(id(attempt))
    try:
        while True:
            [answer] = await send_claims(engine, [attempt])
            if attempt.state is OWNED:
                if engine.stopping:
                    engine.refuse_to_claim()
                return None
            if answer.verdict is SETTLED:
                attempt.move(WAITING)
                continue
            now = runtime.monotonic()
            left = deadline - now
            if answer.verdict is RUNNING and engine.stopping:
                engine.refuse_to_claim()
            if answer.verdict is not RUNNING or left <= 0:
                return await refuse(attempt, answer, waited=True)
            if engine.history is not None:
                engine.history.saw_owner(answer.record)
            attempt.move(WAITING)
            lease = lease_left(answer)
            if now >= report_at:
                report_at = deadline
                _emit_waiting(engine, job.key, answer, lease, left)
            expiry = left if lease is None else lease + FIRST_PAUSE
            await gate.wait(min(left, expiry, pause * (0.5 + runtime.jitter() / 2)))
            pause = min(pause * 1.6, LONGEST_PAUSE)
    finally:
        engine.claims_in_flight.discard(id(attempt))
        if stop is not None:
            stop()


def _emit_waiting(engine: Engine, key: Key, answer: Answer, lease: float | None, left: float) -> None:
    """Emit the event of a call that waits for another worker. Without it, no log line would explain a long wait."""
    ends = "" if lease is None else f"; its lease ends in {lease:.0f} s unless it is renewed"
    reason = f"another worker is processing this key{ends}; this call waits {left:.0f} s more"
    engine.emit("waiting", key, answer.record, reason=reason)


def _refuse_reentrant(engine: Engine, attempts: Sequence[Attempt]) -> list[Reentrant | None]:
    """Refuse attempts whose key an enclosing call holds: waiting for it would never end."""
    blocked = [reentry_error(engine, one.job) for one in attempts]
    for one, error in zip(attempts, blocked, strict=True):
        if error is not None:
            one.move(REFUSED)
    return blocked


def reentry_error(engine: Engine, job: Job) -> Reentrant | None:
    """Return an error if an enclosing call holds the key: waiting for it would never end."""
    attempt = current()
    if (attempt is not None and attempt.covers(engine, job.key.id)) or is_in_joined_job(engine, job.key.id):
        return Reentrant(
            "an outer call in this call chain already holds this key; waiting for it would never end",
            key=job.key.text,
            hint="give the inner work its own key",
        )
    return None


def refuse_reentry(engine: Engine, job: Job) -> None:
    error = reentry_error(engine, job)
    if error is not None:
        raise error
