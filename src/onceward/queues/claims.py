"""Claim, run and record a batch of deliveries. Errors are returned as values, so that one does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from onceward.engine import settle
from onceward.engine.abandon import abandon
from onceward.engine.attempt import OWNED, RUNNING, SETTLED, SETTLING, UNKNOWN, Attempt
from onceward.engine.conclude import completion_outcome, executed_outcome, unconfirmed_outcome
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.engine.retry import store_error_of
from onceward.engine.runner import claim, perform
from onceward.errors import StoreError
from onceward.keys.small import is_small
from onceward.protocol.outcome import Outcome, Parked, Running
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Complete, Verdict

ClaimResult = Attempt | Outcome[Any] | Exception
"""The result of a claim: the attempt, which may run, or the outcome or error that refused it."""


async def claim_deliveries(engine: Engine, jobs: Sequence[Job]) -> list[ClaimResult]:
    """Claim the jobs, each with a different key, in one call. Never wait for a running owner.

    If the store fails, each job gets the same error. If a record is damaged, only its own job gets the error.
    """
    attempts = [Attempt(engine, job) for job in jobs]
    try:
        refusals = await claim(engine, attempts, may_wait=False)
    except StoreError as error:
        return [error for _ in attempts]
    except BaseException as error:
        await abandon(attempts, error)
        raise
    return [one if refusal is None else refusal for one, refusal in zip(attempts, refusals, strict=True)]


async def run_delivery(attempt: Attempt) -> Outcome[Any]:
    """Run the handler of a claimed delivery, and settle its claim."""
    try:
        return await perform(attempt)
    except BaseException as error:
        await abandon([attempt], error)
        raise


async def park_message(engine: Engine, job: Job, error_type: str, error: str) -> bool:
    """Park a record for a message that cannot be processed, for an operator to resolve. False: not possible now."""
    attempt = Attempt(engine, job)
    try:
        [refusal] = await claim(engine, [attempt], may_wait=False)
        if attempt.state is OWNED:
            return (await settle.park(attempt, error_type, error)).verdict is Verdict.OK
    except BaseException as interrupt:
        await abandon([attempt], interrupt)
        raise
    if isinstance(refusal, Exception):
        raise refusal
    return isinstance(refusal, Parked) or not (refusal is None or isinstance(refusal, Running))


# ── results that are recorded together ──


class Unrecorded(NamedTuple):
    """Work that is done, but whose result is not recorded yet."""

    attempt: Attempt
    completion: Complete
    value: Any


def can_batch_result(attempt: Attempt) -> bool:
    """Return whether the result may be recorded in one call with others.

    Not if the store answers without waiting, if the record must be verified first, or if a lost key cancels the work.
    """
    return (
        attempt.state is OWNED
        and not attempt.engine.store.inline
        and not attempt.record.ask_first
        and attempt.job.policy.on_lost != "cancel"
    )


def batchable_result(attempt: Attempt, value: Any) -> Unrecorded | None:
    """Return the value to record together with others. None: it must be settled separately."""
    if attempt.state is not RUNNING or attempt.joined is not None or not is_small(value):
        return None
    attempt.result = value
    encoded = attempt.job.codec.encode(value, attempt.record.id, attempt.record.cycle)
    return Unrecorded(attempt, settle.completion(attempt, encoded), value)


async def record_together(engine: Engine, done: Sequence[Unrecorded]) -> list[Outcome[Any]]:
    """Record all results in one call. If it fails, record each separately, with the same bytes and its own timeout."""
    timeout = min(one.attempt.job.policy.call_timeout for one in done)
    for one in done:
        one.attempt.move(SETTLING)
    try:
        answers, _ = await engine.shield(engine.store.settle([one.completion for one in done], timeout=timeout))
    except BaseException as error:
        for one in done:
            one.attempt.move(UNKNOWN)
        if not isinstance(store_error_of(error), StoreError):
            raise
        return [await _record_alone(one) for one in done]
    for one, answer in zip(done, answers, strict=True):
        settle.on_answer(one.attempt, answer, RecordState.COMPLETED)
    return [completion_outcome(one.attempt, one.value, answer) for one, answer in zip(done, answers, strict=True)]


async def _record_alone(one: Unrecorded) -> Outcome[Any]:
    """Record one result. If the consumer is cancelled meanwhile, the other results are recorded nevertheless."""
    try:
        answer = await settle.settle(one.attempt, one.completion, RecordState.COMPLETED)
    except StoreError as error:
        return unconfirmed_outcome(one.attempt, one.value, error)
    except asyncio.CancelledError as error:
        if one.attempt.state is SETTLED:
            return executed_outcome(one.attempt)
        return unconfirmed_outcome(one.attempt, one.value, error)
    return completion_outcome(one.attempt, one.value, answer)
