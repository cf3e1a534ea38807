"""`once.map`: claim many jobs in batches, run them one after another, return the outcomes in input order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.errors import RecordBroken, StoreUnavailable
from onceward.protocol.outcome import Executed, Failed, Outcome, Replayed
from onceward.protocol.policy import Policy
from onceward.protocol.record import AfterCrash
from onceward.protocol.transitions import differs

from .abandon import abandon
from .acquire import KEY_ERRORS, Refusal, wait_for_key
from .attempt import WAITING, Attempt
from .engine import YIELD_EVERY, Engine
from .error_text import message_of
from .job import Job
from .runner import claim, execute, is_protected, perform

BATCH = 256

Outcomes = dict[bytes, Outcome[Any]]


async def execute_all(engine: Engine, items: Sequence[Job | Exception]) -> list[Outcome[Any]]:
    """Return one outcome per item. A repeated key runs once. A handler that fails does not stop the others."""
    firsts = distinct_jobs(engine, items)
    outcomes: Outcomes = {}
    distinct = list(firsts.values())
    size = batch_size(distinct[0].policy) if distinct else 1
    for start in range(0, len(distinct), size):
        await _execute_batch(engine, [Attempt(engine, job) for job in distinct[start : start + size]], outcomes)
    results: list[Outcome[Any]] = []
    for index, job in enumerate(items):
        await _yield_sometimes(engine, index)
        results.append(
            failed_outcome("", job) if isinstance(job, Exception) else await outcome_of(engine, job, firsts, outcomes)
        )
    return results


def distinct_jobs(engine: Engine, items: Sequence[Job | Exception]) -> dict[bytes, Job]:
    """Return the first job of each key. Jobs that `execute` handles on its own are left out."""
    firsts: dict[bytes, Job] = {}
    for job in items:
        if isinstance(job, Job) and _is_claimed_in_batch(engine, job):
            firsts.setdefault(job.key.id, job)
    return firsts


def _is_claimed_in_batch(engine: Engine, job: Job) -> bool:
    """Return False if `execute` handles this job on its own: it needs no claim, runs anyway, or joins a transaction."""
    enforced = is_protected(engine, job) and engine.rollout.enforces
    return enforced and engine.open_transactions.to_join(engine, job) is None


def batch_size(policy: Policy) -> int:
    """Return how many keys may be claimed before the first of them is done.

    After a crash, every claimed key counts as attempted, even if its work had not started. If the key
    would be parked or its attempts are limited, only one key is claimed at a time.
    """
    return BATCH if policy.after_crash is AfterCrash.RERUN and not policy.max_attempts else 1


async def _execute_batch(engine: Engine, attempts: list[Attempt], outcomes: Outcomes) -> None:
    """Claim the batch in one call and run the keys that we own. Then wait for the keys that other workers own."""
    try:
        refusals = await claim(engine, attempts)
        for index, (one, refusal) in enumerate(zip(attempts, refusals, strict=True)):
            await _yield_sometimes(engine, index)
            if one.state is not WAITING:
                await claimed_outcome(one, refusal, outcomes)
        for one in attempts:
            if one.state is WAITING:
                await waited_outcome(one, outcomes)
    except BaseException as error:
        await abandon(attempts, error)
        raise


async def claimed_outcome(attempt: Attempt, refusal: Refusal, outcomes: Outcomes) -> Outcome[Any]:
    """Run the work of a claimed key, or return why it was refused. Note the outcome in `outcomes`.

    Raise if the client has been stopped since the claim: the caller releases the keys whose work has not begun.
    """
    if isinstance(refusal, Exception):
        outcome = failed_outcome(attempt.key.text, refusal)
    elif refusal is not None:
        outcome = refusal
    else:
        if attempt.engine.stopping:
            attempt.engine.refuse_to_claim()
        outcome = await perform(attempt)
    outcomes[attempt.key.id] = outcome
    return outcome


async def waited_outcome(attempt: Attempt, outcomes: Outcomes) -> Outcome[Any]:
    """Like `claimed_outcome`, for a key that another worker owns: wait for it first."""
    try:
        refusal = await wait_for_key(attempt)
    except RecordBroken as error:
        refusal = error
    return await claimed_outcome(attempt, refusal, outcomes)


async def outcome_of(engine: Engine, job: Job, firsts: dict[bytes, Job], outcomes: Outcomes) -> Outcome[Any]:
    """Return the outcome of one item. A later item with the same key replays the first, unless its payload differs."""
    first = firsts.get(job.key.id)
    if first is None or differs(first.fingerprint, job.fingerprint):
        try:
            return await execute(engine, job)
        except KEY_ERRORS as error:
            return failed_outcome(job.key.text, error)
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


async def _yield_sometimes(engine: Engine, index: int) -> None:
    """Yield to other tasks every few items: the steps are small, but may all run without waiting."""
    if index % YIELD_EVERY == YIELD_EVERY - 1:
        await engine.runtime.sleep(0)


def failed_outcome(key: str, error: Exception) -> Outcome[Any]:
    """Return the outcome of an item whose job could not be built or claimed."""
    final = not isinstance(error, StoreUnavailable)
    return Failed(key=key, error_type=type(error).__qualname__, error=message_of(error), final=final, exception=error)
