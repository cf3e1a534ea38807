"""Deliveries of a queue: claimed together in one call, carried out one by one. Nobody waits for a running owner.

What stands in the way of one delivery is a value, like its outcome: it is no reason to stop the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from onceward.errors import NOT_DOWN, ClaimError, ResultError, StoreError, VersionSkew
from onceward.keys.weight import is_light
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
"""What a claim led to: ours, or the outcome or the error that stands in its way."""

KEY_ERRORS = (ResultError, VersionSkew, ClaimError)
"""What is wrong with one key says nothing about the others."""


async def claim_together(engine: Engine, jobs: Sequence[Job]) -> list[ClaimResult]:
    """Each job of another key. No store: the same error for each."""
    asked = [Attempt(engine, job) for job in jobs]
    try:
        await engine.ready()
        return await _claim(engine, asked)
    except StoreError as error:
        await recover(engine, asked, error)
        return [error for _ in asked]
    except BaseException as error:
        await recover(engine, asked, error)
        raise


async def _claim(engine: Engine, asked: Sequence[Attempt]) -> list[ClaimResult]:
    since = engine.runtime.monotonic()
    answers, cancelled = await _request_claims(engine, asked)
    for one, answer in zip(asked, answers, strict=True):
        one.apply_answer(answer)
    if cancelled is not None:
        raise cancelled
    found: list[ClaimResult] = []
    for one, answer in zip(asked, answers, strict=True):
        try:
            found.append(start_heartbeat(one, since) if one.acquired else await _refusal(one, answer))
        except KEY_ERRORS as error:
            found.append(error)
    return found


async def _request_claims(engine: Engine, asked: Sequence[Attempt]) -> tuple[list[Answer], BaseException | None]:
    """Repeated with the same nonces if no reply came: what was granted into the void is recognised as ours."""
    timeout = min(one.job.policy.call_timeout for one in asked)
    requests = [one.request() for one in asked]
    for _ in TRIES_LEFT[:-1]:
        try:
            return await engine.shield(engine.store.claim(requests, timeout=timeout))
        except StoreError:
            await engine.runtime.sleep(FIRST_PAUSE * (1 + engine.runtime.jitter()))
    return await engine.shield(engine.store.claim(requests, timeout=timeout))


async def _refusal(one: Attempt, answer: Answer) -> Attempt | Outcome[Any]:
    if answer.verdict is Verdict.SETTLED:  # granted into the void, and settled by somebody since: ask anew
        return await acquire(one)
    return await refusal_outcome(one.engine, one.job, answer)


def needs_no_claim(job: Job) -> bool:
    """It has no key and was declared to run all the same, or the test mode is on."""
    return job.key is NO_KEY or bool(switch.off)


async def run_delivery(engine: Engine, job: Job, found: Attempt | StoreError | None) -> Outcome[Any] | Exception:
    """Run what is ours, or needs no claim. Without a store, only what was declared to run all the same."""
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
    """Whether its result may be recorded with those of others: not where the store answers at once, or asks first."""
    return attempt.engine.answer is None and not attempt.record.ask_first and attempt.job.policy.on_lost != "cancel"


def begin_in_task(attempt: Attempt) -> Any:
    """As `perform` begins, in a task of its own. What the handler gives is to be awaited there, if it can be."""
    attempt.enter_task()
    attempt.begun = True
    job = attempt.job
    return job.call(*job.args, **job.kwargs)


def batchable_result(attempt: Attempt, value: Any) -> Unrecorded | None:
    """What was begun apart has returned. A plain result is left to be recorded with others; None: this is none."""
    if attempt.settled is not None or attempt.joined is not None or not is_light(value):
        return None
    attempt.result = value
    return Unrecorded(attempt, attempt.small_completion(value), value)


class Unrecorded(NamedTuple):
    """Work that is done, and whose result the store has to be told."""

    attempt: Attempt
    completion: Complete
    value: Any


async def record_together(engine: Engine, done: Sequence[Unrecorded]) -> list[Outcome[Any]]:
    """One call for all. If it is not answered, each by itself, with the same bytes, for as long as its policy says."""
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
    """A record of its own, parked, for a message that cannot be done: a person must say. False: not now."""
    found = (await claim_together(engine, [job]))[0]
    if isinstance(found, Attempt):
        with found:
            answer = await found.park(error_type, error)
        return answer.verdict is Verdict.OK
    if isinstance(found, Exception):
        raise found
    return isinstance(found, Parked) or not isinstance(found, Running)
