"""As `execute`, for work that must not end with whoever waits for it: a client that hangs up, a server that gives up.

Until the key is ours, a caller who leaves takes the question back. From then on the work has a life of its own, and
settles its claim by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from onceward.errors import NOT_DOWN, StoreError
from onceward.model.outcome import Outcome

from . import switch
from .acquire import acquire
from .engine import Engine
from .execute import at_a_glance, execute, perform, unprotected
from .held import Held, message_of
from .interrupted import recover
from .job import NO_KEY, Job

Apart = Callable[[Coroutine[Any, Any, Outcome[Any]]], Awaitable[Outcome[Any]]]
"""Starts work on its own, and gives what waits for it: to stop waiting does not stop the work."""


async def execute_apart(engine: Engine, job: Job, apart: Apart) -> Outcome[Any]:
    """Do the job once, or say why it was not done now. Only work that begins is started `apart`."""
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
        if not isinstance(found, Held):
            return found
    except BaseException as error:
        await recover(engine, [held], error)
        if held.granted or not isinstance(error, StoreError) or isinstance(error, NOT_DOWN):
            raise
        if job.policy.on_store_down != "run":
            raise
        reason = f"store down: {message_of(error)}"
        return await apart(unprotected(engine, job, reason))
    return await apart(performed(held))


async def performed(held: Held) -> Outcome[Any]:
    """Run the handler of a claim that we hold; whatever interrupts it, the key does not stay locked."""
    try:
        return await perform(held)
    except BaseException as error:
        await recover(held.engine, [held], error)
        raise
