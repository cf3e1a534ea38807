"""The main flow: claim → run → record, or replay.

    look up the key ── completed ──→ Replayed
        │ not completed
    acquire the key ── refused ──→ Replayed, Running, Mismatch, Failed, Parked
        │ acquired
    verify first? ── the effect has happened ──→ Replayed        (only after a crash, with `verify`;
        │                                                         inconclusive: Parked, no attempts left: Failed)
        │ no
    run the handler ── it raised ──→ Failed; with `park` or `verify`, Parked if the effect is unknown
        │ it returned
    record the result ── no answer, or taken over ──→ Unknown
        │
    Executed

The handler's exceptions are passed as values until the client raises them, because a StopIteration raised
through a coroutine would become a RuntimeError.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, NoReturn

from onceward.errors import NOT_DOWN, ConfigurationError, StoreError
from onceward.keys.small import is_small
from onceward.protocol.outcome import Executed, Failed, Outcome, Replayed
from onceward.protocol.policy import applied, inconclusive, not_applied

from . import switch
from .acquire import acquire, await_answer, handle_refusal, send_claim, take_if_acquired
from .attempt import Attempt
from .engine import Engine
from .error_text import message_of
from .interrupted import recover
from .job import NO_KEY, Job
from .lookup import lookup_completed, replayed_outcome
from .settle_outcome import (
    COMPLETED,
    OK,
    call_find,
    completion_outcome,
    executed_outcome,
    park,
    settle_raised,
    settle_returned,
    unconfirmed_outcome,
)
from .unclaimed import Unclaimed


async def execute(engine: Engine, job: Job) -> Outcome[Any]:
    """Do the job once, or return the outcome that explains why it was not done."""
    seen = lookup_completed(engine, job)
    if seen is not None:
        return replayed_outcome(job, *seen)
    return as_outcome(await execute_uncompleted(engine, job))


def as_outcome(found: Attempt | Outcome[Any]) -> Outcome[Any]:
    """Convert the result of a flow to an outcome: an Attempt means that the work was run and recorded.

    Callers do not keep `found` in a variable: a failure's traceback refers to their frame, so that would be a
    reference cycle.
    """
    return executed_outcome(found) if isinstance(found, Attempt) else found


def lookup_outcome(engine: Engine, job: Job) -> Outcome[Any] | None:
    """Return the outcome of a completed key, or None."""
    seen = lookup_completed(engine, job)
    return None if seen is None else replayed_outcome(job, *seen)


async def execute_uncompleted(engine: Engine, job: Job) -> Attempt | Outcome[Any]:
    """Do the rest of `execute`, for a job that the lookup did not find completed.

    If the work was run and recorded, return the attempt: callers that only want its `result` need no outcome.
    """
    attempt = Attempt(engine, job)
    try:
        return await run_attempt(attempt)
    except BaseException as error:
        unclaimed = await recover_or_run_unprotected(attempt, error)
        if unclaimed is None:
            raise
        return unclaimed


async def run_attempt(attempt: Attempt) -> Attempt | Outcome[Any]:  # noqa: C901, PLR0912, PLR0915 (in one coroutine, for speed)
    """Run the attempt from its state to its end: not requested yet, or acquired."""
    engine, job = attempt.engine, attempt.job
    if not attempt.acquired:
        if engine.shielded_type is None or not engine.opened or job.key is NO_KEY or switch.off:
            found = await acquire_or_refuse(attempt)
        else:
            sent = send_claim(attempt)
            if type(sent) is not engine.shielded_type:
                found = await await_answer(attempt, engine.shield(sent))
            else:
                try:
                    answer = await sent.future
                except BaseException as error:  # noqa: BLE001 (raised again, unless it is a cancellation or a StoreError)
                    found = await await_answer(attempt, sent.finish_after(error))
                else:
                    found = take_if_acquired(attempt, answer) or await handle_refusal(attempt, answer)
        if found is not attempt:
            return found
    if not attempt.begun:
        attempt.__enter__()
    try:
        if not attempt.begun:
            settled = await verify_first(attempt) if attempt.record.ask_first else None
            if settled is not None:
                return settled
            if job.policy.on_lost == "cancel":
                attempt.begin()
            value = call_handler(attempt)
            if job.is_async:
                try:
                    if type(value) is CoroutineType or hasattr(value, "__await__"):
                        # One statement: if a signal interrupts after it, the result is already known.
                        value = attempt.result = await value
                except BaseException as error:  # noqa: BLE001 (as in `call_handler`)
                    attempt.raised = error
            if attempt.raised is None:
                attempt.result = value
        if attempt.raised is not None or not (attempt.is_simple and is_small(attempt.result)):
            return await settle_outcome(attempt)
        try:
            completion = attempt.settlement(job.codec.encode(attempt.result, attempt.key.id))
            if engine.shielded_type is None:
                answer = await attempt.settle(completion, COMPLETED)
            else:
                sent = attempt.send(completion)
                if type(sent) is not engine.shielded_type:
                    answer = await attempt.settle(completion, COMPLETED, engine.shield(sent, attempt.hurry))
                else:
                    try:
                        answer = await sent.future
                    except BaseException as error:  # noqa: BLE001 (as above)
                        answer = await attempt.settle(completion, COMPLETED, sent.finish_after(error, attempt.hurry))
                    else:
                        attempt.on_settled(answer, COMPLETED)
        except StoreError as error:
            return unconfirmed_outcome(attempt, attempt.result, error)
        return attempt if answer.verdict is OK else completion_outcome(attempt, attempt.result, answer)
    finally:
        attempt.exit()


def settle_outcome(attempt: Attempt) -> Coroutine[Any, Any, Outcome[Any]]:
    """Settle a claim whose work raised, or whose result the fast path cannot record."""
    return (
        settle_returned(attempt, attempt.result)
        if attempt.raised is None
        else settle_raised(attempt, attempt.take_error())
    )


def acquire_or_refuse(attempt: Attempt) -> Coroutine[Any, Any, Attempt | Outcome[Any]]:
    """Acquire the claim, or return the outcome of the job without it."""
    engine, job = attempt.engine, attempt.job
    if switch.off:
        return run_disabled(engine, job)
    if job.key is NO_KEY:
        return run_unprotected(engine, job, "no key")
    if not engine.opened:
        return open_and_acquire(attempt)
    return acquire(attempt)


async def open_and_acquire(attempt: Attempt) -> Attempt | Outcome[Any]:
    """Open the store, then acquire the claim."""
    try:
        await attempt.engine.ready()
    except StoreError as error:
        error.with_key(attempt.key.text)
        raise
    return await acquire(attempt)


async def recover_or_run_unprotected(attempt: Attempt, error: BaseException) -> Outcome[Any] | None:
    """Clean up after an error (see `interrupted`), or run the work without a claim.

    The latter only if the store is down and the policy says so. None: the caller raises the error again.
    """
    await recover(attempt.engine, [attempt], error)
    if attempt.acquired or not isinstance(error, StoreError) or isinstance(error, NOT_DOWN):
        return None
    if attempt.job.policy.on_store_down != "run":
        return None
    return await run_unprotected(attempt.engine, attempt.job, f"store down: {message_of(error)}")


async def perform(attempt: Attempt) -> Outcome[Any]:
    """Run the handler of an acquired claim and settle it, whatever happens."""
    return as_outcome(await run_attempt(attempt))


def call_handler(attempt: Attempt) -> Any:
    """Call the handler and return its value. An exception is kept in `attempt.raised` until the claim is settled."""
    job = attempt.job
    attempt.begun = True
    try:
        value = job.call(*job.args, **job.kwargs) if job.kwargs else job.call(*job.args)
        if type(value) is CoroutineType and not job.is_async:
            refuse_coroutine(job, value)
    except BaseException as error:  # noqa: BLE001 (see docstring)
        attempt.raised = error
        return None
    return value


def refuse_coroutine(job: Job, coroutine: CoroutineType[Any, Any, Any]) -> NoReturn:
    """Raise because a sync call cannot await the handler's coroutine."""
    coroutine.close()
    raise ConfigurationError(
        "the function returned a coroutine, which a sync call cannot await; it was not started",
        key=job.key.text,
        hint="use AsyncOnce, or once.aio",
    )


async def verify_first(attempt: Attempt) -> Outcome[Any] | None:
    """Check with `find` whether the effect of an earlier, crashed attempt has happened. None: it has not, so run."""
    finding = await call_find(attempt)
    if isinstance(finding, applied):
        outcome = await settle_returned(attempt, finding.value, reason="verified")
        if not isinstance(outcome, Executed):
            return outcome
        record = attempt.record
        return Replayed(
            key=outcome.key, value=finding.value, reason="verified", attempt=record.attempt, token=record.token
        )
    if finding is not not_applied:
        why = "verify could not tell" if finding is inconclusive else f"verify answered {type(finding).__qualname__}"
        return await park(attempt, "Unverified", why, finding if isinstance(finding, Exception) else None)
    limit = attempt.job.policy.max_attempts
    if limit and attempt.record.attempt > limit:
        error = RuntimeError(f"attempt {attempt.record.attempt} would be more than the {limit} allowed")
        await attempt.fail(error, final=True, known=True, error_type="AttemptsUsedUp")
        return Failed(
            key=attempt.key.text,
            reason=attempt.job.policy.reasons.failed,
            attempt=attempt.record.attempt - 1,
            error_type="AttemptsUsedUp",
            error=str(error),
            final=True,
        )
    return None


async def call_unclaimed(job: Job) -> Any:
    """Call the handler without a claim."""
    value = job.call(*job.args, **job.kwargs)
    if job.is_async:
        return await value if hasattr(value, "__await__") else value
    return refuse_coroutine(job, value) if type(value) is CoroutineType else value


async def run_unprotected(engine: Engine, job: Job, reason: str) -> Outcome[Any]:
    """Run without a claim, because the policy declares so. Emits an ERROR event: each one needs attention."""
    engine.emit("unprotected", job.key, reason=reason)
    return await run_without_claim(job, "unprotected")


async def run_disabled(engine: Engine, job: Job) -> Outcome[Any]:
    """Run in test mode: as if the function were not decorated, but with a claim that it can use."""
    with Unclaimed(engine, job):
        return await run_without_claim(job, "disabled")


async def run_without_claim(job: Job, reason: str) -> Outcome[Any]:
    try:
        value = await call_unclaimed(job)
    except Exception as error:  # noqa: BLE001 (passed as a value, like every handler's exception)
        return Failed(
            key=job.key.text,
            reason=reason,
            error_type=type(error).__qualname__,
            error=message_of(error),
            exception=error,
        )
    return Executed(key=job.key.text, value=value, reason=reason)
