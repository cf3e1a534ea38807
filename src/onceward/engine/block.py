"""The life of a claim that a `with` block holds."""

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
    """The claim before it is asked for: whatever interrupts the asking, it can be given back."""
    return Unclaimed(engine, job) if switch.off else Attempt(engine, job)


async def enter(attempt: Attempt) -> None:
    """Own the key, or raise what stands in the way: a result that is there already is no grant."""
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
    """`enter` raised, or what followed it: the block does not begin."""
    attempt.begun = False
    if isinstance(attempt, Unclaimed):
        attempt.leave()
    else:
        await recover(attempt.engine, [attempt], error)


def abandon_block(attempt: Attempt) -> None:
    """The end of its block was struck before it began, and nobody holds the block any more: as after a crash."""
    attempt.leave()
    attempt.abandon()


async def leave(attempt: Attempt, error: BaseException | None) -> None:
    """End the claim, whatever happened inside. Raises only if nothing was raised inside, or if the key was lost."""
    if isinstance(attempt, Unclaimed):
        attempt.__exit__()
        return
    outcome = await (settle_returned(attempt, None) if error is None else settle_raised(attempt, error))
    attempt.__exit__()
    if error is None or isinstance(outcome, Unknown):
        outcome.unwrap()


async def leave_interrupted(attempt: Attempt, error: BaseException | None, interrupt: BaseException) -> None:
    """`leave` raised. Unless that was its own last word, an interrupt kept it from having one: have it now."""
    attempt.leave()
    closing = attempt.engine.runtime.supports_cancellation and isinstance(interrupt, GeneratorExit)
    if attempt.closed or closing or interrupt is error or isinstance(interrupt, OncewardError):
        return
    if error is None:
        attempt.result = None
    await settle_interrupted(attempt, error or interrupt)


def refusal_error(outcome: Outcome[object]) -> BaseException:
    """The exception for an outcome that is no grant."""
    if isinstance(outcome, Replayed):
        return outcome.already_done()
    try:
        outcome.unwrap()
    except Exception as error:  # noqa: BLE001 (it is what we are here to make)
        return error.with_traceback(None)
    return AlreadyDone("there is nothing to own", key=outcome.key)
