"""Many jobs at once: claimed in batches, run one after another, told in the order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.errors import ResultError, StoreError
from onceward.model.outcome import Executed, Failed, Outcome, Replayed
from onceward.model.record import Answer, Record, Release, Verdict
from onceward.model.transitions import differs

from . import switch
from .acquire import FIRST_PAUSE, TRIES, outcome_of, refuse_reentry, release, take
from .engine import Engine
from .execute import execute, perform
from .held import Held, message_of
from .job import NO_KEY, Job

BATCH = 256


async def execute_all(engine: Engine, jobs: Sequence[Job]) -> list[Outcome[Any]]:
    """One outcome a job. A key that comes twice runs once; one that fails stops no other."""
    firsts: dict[bytes, Job] = {}
    for job in jobs:
        if job.key is not NO_KEY and not switch.off:
            firsts.setdefault(job.key.id, job)
    outcomes: dict[bytes, Outcome[Any]] = {}
    distinct = list(firsts.values())
    for start in range(0, len(distinct), BATCH):
        await _execute_batch(engine, distinct[start : start + BATCH], outcomes)
    return [await _outcome(engine, job, firsts.get(job.key.id), outcomes) for job in jobs]


async def _outcome(engine: Engine, job: Job, first: Job | None, outcomes: dict[bytes, Outcome[Any]]) -> Outcome[Any]:
    """A later item with the same key is a replay of the first, unless its payload is another."""
    if first is None or differs(first.fingerprint, job.fingerprint):
        return await execute(engine, job)
    outcome = outcomes[job.key.id]
    if job is first or not isinstance(outcome, Executed):
        return outcome
    engine.tell("skipped", job.key, reason="replayed")
    return Replayed(key=job.key.text, value=outcome.value, attempt=outcome.attempt, token=outcome.token)


async def _execute_batch(engine: Engine, jobs: list[Job], outcomes: dict[bytes, Outcome[Any]]) -> None:
    pending = await _claim(engine, jobs, outcomes)
    try:
        for job in jobs:
            mine = pending.pop(job.key.id, None)
            if mine is not None:
                outcomes[job.key.id] = await perform(mine)
        for job in jobs:
            if job.key.id not in outcomes:  # running elsewhere, or no store: each by its own policy
                outcomes[job.key.id] = await execute(engine, job)
    finally:
        for mine in pending.values():  # only after a BaseException: these were not begun
            await mine.release()


def _told(engine: Engine, job: Job, answer: Answer) -> Outcome[Any]:
    """A stored result that cannot be read is the trouble of one item, not of the batch."""
    try:
        return outcome_of(engine, job, answer)
    except ResultError as error:
        return Failed(
            key=job.key.text, error_type=type(error).__qualname__, error=message_of(error), final=True, exception=error
        )


async def _claim(engine: Engine, jobs: list[Job], outcomes: dict[bytes, Outcome[Any]]) -> dict[bytes, Held]:
    """Claim the batch in one call. What has to wait, or failed to be asked, is left for later."""
    await engine.ready()
    for job in jobs:
        refuse_reentry(engine, job)
    since = engine.world.monotonic()
    timeout = min(job.policy.call_timeout for job in jobs)
    answers, cancelled = await _ask(engine, jobs, timeout)
    granted = [
        (job, answer.record)
        for job, answer in zip(jobs, answers, strict=False)  # no answers at all if there is no store
        if answer.verdict is Verdict.ACQUIRED and answer.record
    ]
    if cancelled is not None:
        await engine.store.settle([Release(one.id, one.token, one.nonce) for _, one in granted], timeout=timeout)
        raise cancelled
    for job, answer in zip(jobs, answers, strict=False):
        if answer.verdict in (Verdict.REPLAY, Verdict.MISMATCH, Verdict.FAILED, Verdict.PARKED):
            outcomes[job.key.id] = _told(engine, job, answer)
    return await _take(engine, granted, since)


async def _ask(engine: Engine, jobs: list[Job], timeout: float) -> tuple[list[Answer], BaseException | None]:
    """Repeated with the same nonces if no reply came: what was granted into the void is recognised as ours."""
    requests = [job.request(engine.world.nonce(), engine.owner()) for job in jobs]
    for left in reversed(range(TRIES)):
        try:
            return await engine.finish(engine.store.claim(requests, timeout=timeout))
        except StoreError:
            if left:
                await engine.world.sleep(FIRST_PAUSE * (1 + engine.world.jitter()))
    return [], None


async def _take(engine: Engine, granted: list[tuple[Job, Record]], since: float) -> dict[bytes, Held]:
    held: dict[bytes, Held] = {}
    try:
        for job, record in granted:
            held[job.key.id] = await take(engine, job, record, since)
    except BaseException:  # nobody would keep them alive, and nothing was begun
        for mine in held.values():
            engine.keeper.drop(mine.hold)
        for job, record in granted:
            await release(engine, job, record)
        raise
    return held
