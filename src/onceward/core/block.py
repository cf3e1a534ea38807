"""The life of a claim that a `with` block holds."""

from __future__ import annotations

from onceward.errors import AlreadyDone
from onceward.model.outcome import Outcome, Replayed, Unknown

from . import switch
from .acquire import acquire
from .engine import Engine
from .execute import after_error, after_value, ask_first
from .held import Held
from .job import Job
from .unclaimed import Unclaimed


async def enter(engine: Engine, job: Job) -> Held:
    """Own the key, or raise what stands in the way: a result that is there already is no grant."""
    if switch.off:
        return Unclaimed(engine, job).__enter__()
    found = await acquire(engine, job)
    if not isinstance(found, Held):
        raise refusal(found)
    found.__enter__()
    if found.record.ask_first:
        try:
            settled = await ask_first(found)
        except BaseException:
            found.__exit__()
            raise
        if settled is not None:
            found.__exit__()
            raise refusal(settled)
    found.begin()
    return found


async def leave(held: Held, error: BaseException | None) -> None:
    """End the claim, whatever happened inside. Raises only if nothing was raised inside, or if the key was lost."""
    if isinstance(held, Unclaimed):
        held.__exit__()
        return
    try:
        outcome = await (after_value(held, None) if error is None else after_error(held, error))
    finally:
        held.__exit__()
    if error is None or isinstance(outcome, Unknown):
        outcome.unwrap()


def refusal(outcome: Outcome[object]) -> BaseException:
    """The exception for an outcome that is no grant."""
    if isinstance(outcome, Replayed):
        return AlreadyDone(
            "this was done before",
            key=outcome.key,
            value=outcome.value,
            stored=outcome.stored,
            hint="its result is in `.value`",
        )
    try:
        outcome.unwrap()
    except Exception as error:  # noqa: BLE001 (it is what we are here to make)
        return error.with_traceback(None)
    return AlreadyDone("there is nothing to own", key=outcome.key)
