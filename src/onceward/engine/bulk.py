"""`once.map`: claim many jobs in batches, run them one after another, return the outcomes in input order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.errors import ClaimError, ResultError, StoreError, VersionSkew
from onceward.protocol.outcome import Executed, Failed, Outcome, Replayed
from onceward.protocol.requests import Answer, Verdict
from onceward.protocol.transitions import differs

from . import switch
from .acquire import FIRST_PAUSE, TRIES_LEFT, refusal_outcome, refuse_reentry, start_heartbeat
from .attempt import Attempt
from .engine import YIELD_EVERY, Engine
from .error_text import message_of
from .execute import execute, perform
from .interrupted import recover
from .job import NO_KEY, Job

BATCH = 256

Outcomes = dict[bytes, Outcome[Any]]


async def execute_all(engine: Engine, items: Sequence[Job | Exception]) -> list[Outcome[Any]]:
    """Return one outcome per item. A repeated key runs once. An item that fails does not stop the others."""
    firsts: dict[bytes, Job] = {}
    for job in items:
        if isinstance(job, Job) and job.key is not NO_KEY and not switch.off:
            firsts.setdefault(job.key.id, job)
    outcomes: Outcomes = {}
    distinct = list(firsts.values())
    for start in range(0, len(distinct), BATCH):
        await _execute_batch(engine, distinct[start : start + BATCH], outcomes)
    results: list[Outcome[Any]] = []
    for index, job in enumerate(items):
        await _yield_sometimes(engine, index)
        results.append(
            _failed_outcome("", job) if isinstance(job, Exception) else await _outcome(engine, job, firsts, outcomes)
        )
    return results


async def _yield_sometimes(engine: Engine, index: int) -> None:
    """Yield to other tasks every few items: the steps are small, but may all run without waiting."""
    if index % YIELD_EVERY == YIELD_EVERY - 1:
        await engine.runtime.sleep(0)


async def _outcome(engine: Engine, job: Job, firsts: dict[bytes, Job], outcomes: Outcomes) -> Outcome[Any]:
    """Return the outcome of one item. A later item with the same key replays the first, unless its payload differs."""
    first = firsts.get(job.key.id)
    if first is None or differs(first.fingerprint, job.fingerprint):
        return await _execute_alone(engine, job)
    outcome = outcomes[job.key.id]
    if job is first or not isinstance(outcome, Executed | Replayed):
        return outcome
    engine.emit("skipped", job.key, reason=job.policy.reasons.done)
    if isinstance(outcome, Replayed):
        return outcome
    value = outcome.value
    encoded = await engine.encode(job.codec, value, job.key.id)
    if encoded.data is not None:  # its own copy, as from the store
        value = await engine.decode(job.codec, encoded.data, job.key.id)
    return Replayed(
        key=job.key.text,
        value=value,
        reason=job.policy.reasons.done,
        attempt=outcome.attempt,
        token=outcome.token,
    )


async def _execute_batch(engine: Engine, jobs: list[Job], outcomes: Outcomes) -> None:
    attempts = _new_attempts(engine, jobs, outcomes)
    try:
        await engine.ready()
        await _claim(engine, attempts, outcomes)
        for index, one in enumerate(attempts):
            await _yield_sometimes(engine, index)
            if one.acquired:
                outcomes[one.key.id] = await perform(one)
    except BaseException as error:
        await recover(engine, attempts, error)
        raise
    for index, job in enumerate(jobs):
        await _yield_sometimes(engine, index)
        if job.key.id not in outcomes:  # running elsewhere, or the store is down: each by its own policy
            outcomes[job.key.id] = await _execute_alone(engine, job)


async def _execute_alone(engine: Engine, job: Job) -> Outcome[Any]:
    try:
        return await execute(engine, job)
    except KEY_ERRORS as error:
        return _failed_outcome(job.key.text, error)


def _new_attempts(engine: Engine, jobs: list[Job], outcomes: Outcomes) -> list[Attempt]:
    attempts: list[Attempt] = []
    for job in jobs:
        try:
            refuse_reentry(engine, job)
        except ClaimError as error:
            outcomes[job.key.id] = _failed_outcome(job.key.text, error)
        else:
            attempts.append(Attempt(engine, job))
    return attempts


async def _claim(engine: Engine, attempts: list[Attempt], outcomes: Outcomes) -> None:
    """Claim the batch in one call. Keys that must wait, or got no answer, are executed alone later."""
    if not attempts:
        return
    since = engine.runtime.monotonic()
    answers, cancelled = await _request_claims(engine, attempts)
    for one, answer in zip(attempts, answers, strict=False):  # empty if the store is down
        one.apply_answer(answer)
    if cancelled is not None:
        raise cancelled
    for index, (one, answer) in enumerate(zip(attempts, answers, strict=False)):
        await _yield_sometimes(engine, index)
        if one.acquired:
            start_heartbeat(one, since)
        elif answer.verdict not in (Verdict.RUNNING, Verdict.SETTLED):
            outcomes[one.job.key.id] = await _refusal(engine, one.job, answer)


async def _request_claims(engine: Engine, attempts: list[Attempt]) -> tuple[list[Answer], BaseException | None]:
    """Send the claims; repeat them with the same nonces if no reply came, so that the store recognises its grants."""
    timeout = min(one.job.policy.call_timeout for one in attempts)
    requests = [one.request() for one in attempts]
    for left in TRIES_LEFT:
        try:
            return await engine.shield(engine.store.claim(requests, timeout=timeout))
        except StoreError:
            if left:
                await engine.runtime.sleep(FIRST_PAUSE * (1 + engine.runtime.jitter()))
    return [], None


async def _refusal(engine: Engine, job: Job, answer: Answer) -> Outcome[Any]:
    """Return the outcome of a refused claim. An unreadable record fails one item, not the batch."""
    try:
        return await refusal_outcome(engine, job, answer)
    except KEY_ERRORS as error:
        return _failed_outcome(job.key.text, error)


KEY_ERRORS = (ResultError, VersionSkew, ClaimError)
"""Errors that concern one key and not the others of the batch."""


def _failed_outcome(key: str, error: Exception) -> Outcome[Any]:
    return Failed(key=key, error_type=type(error).__qualname__, error=message_of(error), final=True, exception=error)
