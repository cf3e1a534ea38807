"""The main flow: claim → run → record, or replay.

    a look ── done before ──→ Replayed
        │ no
    acquire the key ── not ours ──→ Replayed, Running, Mismatch, Failed, Parked
        │ ours
    ask first? ── the effect is there already ──→ Replayed        (only after a crash, under verify)
        │ no
    run the handler ── it raised ──→ Failed, or Parked where nobody can know
        │ it returned
    record the result ── no answer, or replaced ──→ Unknown
        │
    Executed

The handler's own exceptions travel as values until the face raises them, so that even StopIteration survives.
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from onceward.errors import NOT_DOWN, ConfigurationError, StoreError
from onceward.model.outcome import Executed, Failed, Outcome, Replayed
from onceward.model.policy import applied, inconclusive, not_applied
from onceward.model.record import Done

from . import switch
from .acquire import acquire, acquire_at_once, otherwise
from .ending import after_error, after_value, executed, look, park, record_at_once
from .engine import Engine
from .glance import glance, replayed
from .held import Held, message_of
from .interrupted import recover
from .job import NO_KEY, Job
from .unclaimed import Unclaimed


async def execute(engine: Engine, job: Job) -> Outcome[Any]:
    """Do the job once, or say why it was not done now."""
    seen = done_before(engine, job)
    if seen is not None:
        return replayed(job, *seen)
    found = await unseen(engine, job)
    return executed(found) if isinstance(found, Held) else found


def done_before(engine: Engine, job: Job) -> tuple[Done, Any] | None:
    """What a look alone can tell: it is done, with this value. Plain, because most calls of a busy key end here."""
    if switch.off or job.key is NO_KEY or not engine.is_ready():
        return None
    return glance(engine, job)


def at_a_glance(engine: Engine, job: Job) -> Outcome[Any] | None:
    """The same as an outcome."""
    seen = done_before(engine, job)
    return None if seen is None else replayed(job, *seen)


async def unseen(engine: Engine, job: Job) -> Held | Outcome[Any]:
    """The rest of `execute`, for a job that was not answered at a glance.

    The claim itself, if it was run and recorded: who wants no more than its `result` needs no outcome.
    """
    if switch.off:
        return await disabled(engine, job)
    if job.key is NO_KEY:
        return await unprotected(engine, job, "no key")
    held = Held(engine, job)
    try:
        if not engine.opened:
            await engine.ready()
        found: Held | Outcome[Any]
        if engine.answer is None:
            found = await acquire(held)
        else:
            answer = acquire_at_once(held, engine.answer)
            found = held if answer is None else await otherwise(held, answer)
        return await performed(held) if found is held else found
    except BaseException as error:
        reason = await torn(held, error)
        if reason is None:
            raise
    return await unprotected(engine, job, reason)


async def torn(held: Held, error: BaseException) -> str | None:
    """Leave no key locked. Why it may run all the same, if that was declared for a store that is down."""
    await recover(held.engine, [held], error)
    if held.granted or not isinstance(error, StoreError) or isinstance(error, NOT_DOWN):
        return None
    return f"store down: {message_of(error)}" if held.job.policy.on_store_down == "run" else None


async def perform(held: Held) -> Outcome[Any]:
    """Run the handler of a claim that we hold, and settle it, whatever happens."""
    found = await performed(held)
    return executed(found) if isinstance(found, Held) else found


async def performed(held: Held) -> Held | Outcome[Any]:
    """As `perform`; the claim itself, if its result is recorded."""
    held.__enter__()  # not by `with`, which costs more than both steps; an interrupt in between is `leave`'s to mend
    try:
        if held.record.ask_first:
            settled = await ask_first(held)
            if settled is not None:
                return settled
        job = held.job
        held.begun = True
        if job.policy.on_lost == "cancel":
            held.cancel_if_lost()
        try:
            value = job.call(*job.args, **job.kwargs)
            if job.awaits or type(value) is CoroutineType:
                value = await awaited(job, value)
        except BaseException as error:  # noqa: BLE001 (whatever was raised, the claim must end)
            return await after_error(held, error)
        done = record_at_once(held, value)
        return await after_value(held, value) if done is None else done
    finally:
        held.__exit__()


async def awaited(job: Job, value: Any) -> Any:
    """What the handler's awaitable gives. A blocking call cannot await, and a coroutine not begun is no result."""
    if job.awaits:
        return await value if hasattr(value, "__await__") else value
    value.close()
    raise ConfigurationError(
        "it returned a coroutine, which a blocking call cannot await; nothing of it was begun",
        key=job.key.text,
        hint="use AsyncOnce, or once.aio",
    )


async def ask_first(held: Held) -> Outcome[Any] | None:
    """An earlier attempt fell silent: has its effect happened? None means that it has not, so run."""
    finding = await look(held)
    if isinstance(finding, applied):
        outcome = await after_value(held, finding.value, reason="verified")
        if not isinstance(outcome, Executed):
            return outcome
        record = held.record
        return Replayed(
            key=outcome.key, value=finding.value, reason="verified", attempt=record.attempt, token=record.token
        )
    if finding is not not_applied:
        why = "verify could not tell" if finding is inconclusive else f"verify answered {type(finding).__qualname__}"
        return await park(held, "Unverified", why, finding if isinstance(finding, Exception) else None)
    limit = held.job.policy.max_attempts
    if limit and held.record.attempt > limit:
        error = RuntimeError(f"attempt {held.record.attempt} would be more than the {limit} allowed")
        await held.fail(error, final=True, known=True, error_type="AttemptsUsedUp")
        return Failed(
            key=held.key.text,
            reason=held.job.policy.reasons.failed,
            attempt=held.record.attempt - 1,
            error_type="AttemptsUsedUp",
            error=str(error),
            final=True,
        )
    return None


async def unprotected(engine: Engine, job: Job, reason: str) -> Outcome[Any]:
    """Run without a claim, because the user declared so. Loud: somebody should look at each of these."""
    engine.tell("unprotected", job.key, reason=reason)
    return await unguarded(job, "unprotected")


async def disabled(engine: Engine, job: Job) -> Outcome[Any]:
    """The test mode: as if it were not decorated, but for a claim to look at."""
    with Unclaimed(engine, job):
        return await unguarded(job, "disabled")


async def unguarded(job: Job, reason: str) -> Outcome[Any]:
    try:
        value = job.call(*job.args, **job.kwargs)
        if job.awaits or type(value) is CoroutineType:
            value = await awaited(job, value)
    except Exception as error:  # noqa: BLE001 (travels as a value like every handler's exception)
        return Failed(
            key=job.key.text,
            reason=reason,
            error_type=type(error).__qualname__,
            error=message_of(error),
            exception=error,
        )
    return Executed(key=job.key.text, value=value, reason=reason)
