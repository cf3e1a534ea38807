"""Work that must not end with whoever waits for it: a client that hangs up, a server that gives up.

Until the key is ours, a caller who leaves takes the question back. From then on the work has a life of its own: a task,
which `Apart` starts. What is left when it has returned is done by whoever waits for it, or by the task itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from onceward.errors import NOT_DOWN, StoreError
from onceward.model.outcome import Outcome

from . import switch
from .acquire import acquire
from .ending import after_error
from .engine import Engine
from .execute import ask_first, at_a_glance, execute, unprotected
from .held import Held, message_of
from .interrupted import recover
from .job import NO_KEY, Job

Apart = Callable[[Coroutine[Any, Any, Outcome[Any]]], Awaitable[Outcome[Any]]]
"""Starts work on its own, and gives what waits for it: to stop waiting does not stop the work."""


async def claim_apart(engine: Engine, job: Job, apart: Apart) -> Held | Outcome[Any]:
    """The claim, whose work is yet to be begun; or what became of the job without one, run `apart` if at all."""
    done = at_a_glance(engine, job)
    if done is not None:
        return done
    if switch.off or job.key is NO_KEY:
        return await apart(execute(engine, job))
    held = Held(engine, job)
    try:
        if not engine.opened:
            await engine.ready()
        found = await acquire(held)
        if found is held and held.record.ask_first:
            settled = await ask_first(held)
            return held if settled is None else settled
        return found
    except BaseException as error:
        await recover(engine, [held], error)
        if held.granted or not isinstance(error, StoreError) or isinstance(error, NOT_DOWN):
            raise
        if job.policy.on_store_down != "run":
            raise
        reason = f"store down: {message_of(error)}"
    return await apart(unprotected(engine, job, reason))


async def end_apart(held: Held, rest: Awaitable[object]) -> Outcome[Any] | None:
    """The work has returned: do the rest, which settles the claim and raises what the work raised. None: all is well.

    Whatever interrupts it, the key does not stay locked.
    """
    try:
        try:
            await rest
        except BaseException as error:  # noqa: BLE001 (whatever was raised, the claim must end)
            return await after_error(held, error)
    except BaseException as error:
        await recover(held.engine, [held], error)
        raise
    finally:
        if not held.over:
            held.let_lapse()
    return None
