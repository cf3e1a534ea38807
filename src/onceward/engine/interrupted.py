"""Clean up after a call that was interrupted by a signal handler's exception or a cancellation.

    the work was not begun          → release the key
    the work returned its result    → record it
    the work was running            → settle as if it had raised the interrupting exception
    the claim is settled already    → nothing

A coroutine that is being closed cannot wait for the store: there the lease has to expire.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceward.errors import OncewardError, ResultError, RetryTransaction, StoreError, WrongRuntime
from onceward.keys.key import Key

from .acquire import release_later, release_unused
from .attempt import NO_RESULT, Attempt
from .engine import Engine
from .settle_outcome import settle_raised


async def recover(engine: Engine, attempts: Sequence[Attempt], error: BaseException) -> None:
    """Leave no key locked. It raises nothing: the caller raises `error` afterwards."""
    for one in attempts:
        one.leave()
        if isinstance(error, StoreError) and not one.acquired:
            emit_no_answer(engine, one.key, error)
    if engine.runtime.supports_cancellation and isinstance(error, GeneratorExit):
        return
    unused = [one for one in attempts if not (one.begun or one.closed)]
    if isinstance(error, StoreError | ResultError | WrongRuntime) or isinstance(error.__cause__, StoreError):
        if not isinstance(error, WrongRuntime):  # otherwise nothing was sent
            release_later(engine, [one for one in unused if not one.acquired])  # not now: the store does not answer
        unused = [one for one in unused if one.acquired]
    await release_unused(engine, unused)
    for one in attempts:
        if one.begun and not one.closed:
            await settle_interrupted(one, error)


def emit_no_answer(engine: Engine, key: Key, error: StoreError) -> None:
    """Emit the event of a claim that the store did not answer. RetryTransaction is an answer."""
    if not isinstance(error, RetryTransaction):
        engine.emit("claim_failed", key, reason="no answer", error=type(error).__name__)


async def settle_interrupted(attempt: Attempt, error: BaseException) -> None:
    """Settle work that was begun: within one store call, or not at all."""
    attempt.hurry()
    try:
        if attempt.result is not NO_RESULT and attempt.joined is None and not attempt.unconfirmed:
            await attempt.record_result(attempt.result)
        else:
            await settle_raised(attempt, error)
    except BaseException as trouble:  # noqa: BLE001 (`error` is raised anyway, and says more)
        if trouble is not error and not isinstance(trouble, OncewardError):
            error.add_note(f"and while its claim was being settled: {trouble!r}")
    attempt.abandon()
