"""What is left to do for a call that was torn open: by a signal between any two steps, or by a cancellation.

    nothing was begun               → give the key back
    the work returned its result    → record it
    the work was under way          → as if it had raised what interrupts us
    the store had the last word     → nothing

A coroutine that is being closed cannot wait for a store any more: there the lease has to lapse.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceward.errors import OncewardError, ResultError, RetryTransaction, StoreError, WrongRuntime
from onceward.keys.key import Key

from .acquire import release_later, release_unused
from .attempt import NO_RESULT, Attempt
from .engine import Engine
from .settle_outcome import settle_raised


async def recover(engine: Engine, asked: Sequence[Attempt], error: BaseException) -> None:
    """Leave no key locked. Raises nothing of its own: the caller goes on to raise `error`."""
    for one in asked:
        one.leave()
        if isinstance(error, StoreError) and not one.acquired:
            emit_no_answer(engine, one.key, error)
    if engine.runtime.supports_cancellation and isinstance(error, GeneratorExit):
        return
    unused = [one for one in asked if not (one.begun or one.closed)]
    if isinstance(error, StoreError | ResultError | WrongRuntime) or isinstance(error.__cause__, StoreError):
        if not isinstance(error, WrongRuntime):  # else nothing was asked
            release_later(engine, [one for one in unused if not one.acquired])  # now it is no use: no answer came
        unused = [one for one in unused if one.acquired]
    await release_unused(engine, unused)
    for one in asked:
        if one.begun and not one.closed:
            await settle_interrupted(one, error)


def emit_no_answer(engine: Engine, key: Key, error: StoreError) -> None:
    """A claim that the store did not answer. To have to repeat one's own transaction is an answer."""
    if not isinstance(error, RetryTransaction):
        engine.emit("claim_failed", key, reason="no answer", error=type(error).__name__)


async def settle_interrupted(attempt: Attempt, error: BaseException) -> None:
    """The last word on work that was begun: said quickly, or not at all."""
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
