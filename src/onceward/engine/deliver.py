"""Process a batch of queue deliveries: claim them in one call, run them one by one, never wait for a running owner.

An error of one delivery is returned as a value, like its outcome, so that it does not stop the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from onceward.errors import NOT_DOWN, ClaimError, ResultError, StoreError, VersionSkew
from onceward.keys.small import is_small
from onceward.protocol.outcome import Outcome, Parked, Running
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, Complete, Verdict

from . import switch
from .acquire import FIRST_PAUSE, TRIES_LEFT, acquire, refusal_outcome, start_heartbeat
from .attempt import Attempt
from .engine import Engine
from .error_text import message_of
from .execute import execute, perform, run_unprotected
from .interrupted import recover
from .job import NO_KEY, Job
from .settle_outcome import completion_outcome, unconfirmed_outcome

ClaimResult = Attempt | Outcome[Any] | Exception
"""The result of a claim: the acquired attempt, or the outcome or error that refused it."""

KEY_ERRORS = (ResultError, VersionSkew, ClaimError)
"""Errors that concern one key and not the others of the batch."""


async def claim_together(engine: Engine, jobs: Sequence[Job]) -> list[ClaimResult]:
    """Claim the jobs, each with a different key, in one call. If the store fails, each gets the same error."""
    attempts = [Attempt(engine, job) for job in jobs]
    try:
        await engine.ready()
        return await _claim(engine, attempts)
    except StoreError as error:
        await recover(engine, attempts, error)
        return [error for _ in attempts]
    except BaseException as error:
        await recover(engine, attempts, error)
        raise


async def _claim(engine: Engine, attempts: Sequence[Attempt]) -> list[ClaimResult]:
    since = engine.runtime.monotonic()
    answers, cancelled = await _request_claims(engine, attempts)
    for one, answer in zip(attempts, answers, strict=True):
        one.apply_answer(answer)
    if cancelled is not None:
        raise cancelled
    found: list[ClaimResult] = []
    for one, answer in zip(attempts, answers, strict=True):
        try:
            found.append(start_heartbeat(one, since) if one.acquired else await _refusal(one, answer))
        except KEY_ERRORS as error:
            found.append(error)
    return found


async def _request_claims(engine: Engine, attempts: Sequence[Attempt]) -> tuple[list[Answer], BaseException | None]:
    """Send the claims; repeat them with the same nonces if no reply came, so that the store recognises its grants."""
    timeout = min(one.job.policy.call_timeout for one in attempts)
    requests = [one.request() for one in attempts]
    for _ in TRIES_LEFT[:-1]:
        try:
            return await engine.shield(engine.store.claim(requests, timeout=timeout))
        except StoreError:
            await engine.runtime.sleep(FIRST_PAUSE * (1 + engine.runtime.jitter()))
    return await engine.shield(engine.store.claim(requests, timeout=timeout))


async def _refusal(one: Attempt, answer: Answer) -> Attempt | Outcome[Any]:
    if answer.verdict is Verdict.SETTLED:  # an earlier try was granted, and settled since: claim again
        return await acquire(one)
    return await refusal_outcome(one.engine, one.job, answer)


def needs_no_claim(job: Job) -> bool:
    """Return whether the job runs without a claim: it has no key and is declared to run anyway, or test mode is on."""
    return job.key is NO_KEY or bool(switch.off)


async def run_delivery(engine: Engine, job: Job, found: Attempt | StoreError | None) -> Outcome[Any] | Exception:
    """Run a job that was acquired or needs no claim. If the store is down, run it only if the policy says so."""
    if found is None:
        return await execute(engine, job)
    if isinstance(found, Attempt):
        try:
            return await perform(found)
        except BaseException as error:
            await recover(engine, [found], error)
            raise
    if isinstance(found, NOT_DOWN) or job.policy.on_store_down != "run":
        return found
    return await run_unprotected(engine, job, f"store down: {message_of(found)}")


def can_batch_result(attempt: Attempt) -> bool:
    """Return whether the result may be recorded in one call with others.

    Not if the store answers without waiting, if the record must be verified first, or if a lost key cancels the work.
    """
    return not attempt.engine.store.inline and not attempt.record.ask_first and attempt.job.policy.on_lost != "cancel"


def begin_in_task(attempt: Attempt) -> Any:
    """Call the handler in its own task. The task awaits the returned value, if it is awaitable."""
    attempt.enter_task()
    attempt.begun = True
    job = attempt.job
    return job.call(*job.args, **job.kwargs)


def batchable_result(attempt: Attempt, value: Any) -> Unrecorded | None:
    """Return the value of work started by `begin_in_task` for a common recording. None: it must be settled alone."""
    if attempt.settled is not None or attempt.joined is not None or not is_small(value):
        return None
    attempt.result = value
    return Unrecorded(attempt, attempt.small_completion(value), value)


class Unrecorded(NamedTuple):
    """Work that is done, but whose result is not recorded yet."""

    attempt: Attempt
    completion: Complete
    value: Any


async def record_together(engine: Engine, done: Sequence[Unrecorded]) -> list[Outcome[Any]]:
    """Record all results in one call. If it fails, record each alone, with the same bytes and its own timeout."""
    timeout = min(one.attempt.job.policy.call_timeout for one in done)
    for one in done:
        one.attempt.settling = True
    try:
        answers, _ = await engine.shield(engine.store.settle([one.completion for one in done], timeout=timeout))
    except StoreError:
        return [await _record_alone(one) for one in done]
    for one, answer in zip(done, answers, strict=True):
        one.attempt.on_settled(answer, RecordState.COMPLETED)
    return [completion_outcome(one.attempt, one.value, answer) for one, answer in zip(done, answers, strict=True)]


async def _record_alone(one: Unrecorded) -> Outcome[Any]:
    try:
        answer = await one.attempt.settle(one.completion, RecordState.COMPLETED)
    except StoreError as error:
        return unconfirmed_outcome(one.attempt, one.value, error)
    return completion_outcome(one.attempt, one.value, answer)


async def park_message(engine: Engine, job: Job, error_type: str, error: str) -> bool:
    """Park a record for a message that cannot be processed, for a person to resolve. False: not possible now."""
    found = (await claim_together(engine, [job]))[0]
    if isinstance(found, Attempt):
        with found:
            answer = await found.park(error_type, error)
        return answer.verdict is Verdict.OK
    if isinstance(found, Exception):
        raise found
    return isinstance(found, Parked) or not isinstance(found, Running)
