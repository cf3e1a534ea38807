"""Enter and leave the `with` block of a claim."""

from __future__ import annotations

from onceward.errors import AlreadyDone, OncewardError
from onceward.protocol.outcome import Outcome, Replayed, Unknown

from . import switch
from .acquire import acquire
from .attempt import Attempt
from .engine import Engine
from .execute import verify_first
from .interrupted import recover, settle_interrupted
from .job import Job
from .settle_outcome import settle_raised, settle_returned
from .unclaimed import Unclaimed


def new_attempt(engine: Engine, job: Job) -> Attempt:
    """Create the attempt before the key is claimed, so that the caller can release it after any interrupt."""
    return Unclaimed(engine, job) if switch.off else Attempt(engine, job)


async def enter(attempt: Attempt) -> None:
    """Acquire the key, or raise an error that says why not. A completed key raises AlreadyDone."""
    if isinstance(attempt, Unclaimed):
        attempt.__enter__()
        return
    await attempt.engine.ready()
    found = await acquire(attempt)
    if not isinstance(found, Attempt):
        raise refusal_error(found)
    attempt.__enter__()
    settled = await verify_first(attempt) if attempt.record.ask_first else None
    if settled is not None:
        raise refusal_error(settled)
    attempt.begin()


async def enter_failed(attempt: Attempt, error: BaseException) -> None:
    """Clean up after `enter`, or what followed it, raised: the block does not begin."""
    attempt.begun = False
    if isinstance(attempt, Unclaimed):
        attempt.leave()
    else:
        await recover(attempt.engine, [attempt], error)


def abandon_block(attempt: Attempt) -> None:
    """Abandon the claim of a block that was garbage-collected without being left: it counts as a crash."""
    attempt.leave()
    attempt.abandon()


async def leave(attempt: Attempt, error: BaseException | None) -> None:
    """Settle the claim. Raise only if the block raised nothing, or if the key was lost."""
    if isinstance(attempt, Unclaimed):
        attempt.__exit__()
        return
    outcome = await (settle_returned(attempt, None) if error is None else settle_raised(attempt, error))
    attempt.__exit__()
    if error is None or isinstance(outcome, Unknown):
        outcome.unwrap()


async def leave_interrupted(attempt: Attempt, error: BaseException | None, interrupt: BaseException) -> None:
    """Settle the claim after `leave` was interrupted. Do nothing if `leave` had settled it, or refused to."""
    attempt.leave()
    closing = attempt.engine.runtime.supports_cancellation and isinstance(interrupt, GeneratorExit)
    if attempt.closed or closing or interrupt is error or isinstance(interrupt, OncewardError):
        return
    if error is None:
        attempt.result = None
    await settle_interrupted(attempt, error or interrupt)


def refusal_error(outcome: Outcome[object]) -> BaseException:
    """Return the exception for an outcome of a claim that was not acquired."""
    if isinstance(outcome, Replayed):
        return outcome.already_done()
    try:
        outcome.unwrap()
    except Exception as error:  # noqa: BLE001 (it is the return value)
        return error.with_traceback(None)
    return AlreadyDone("the key was already completed", key=outcome.key)
