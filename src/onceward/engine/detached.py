"""Work that must not end with whoever waits for it: a client that hangs up, a server that gives up.

Until the key is ours, a caller who leaves takes the question back. From then on the work has a life of its own, which
its caller gives it; here it is only claimed, or run where there is nothing to claim.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol

from onceward.errors import NOT_DOWN, StoreError
from onceward.protocol.outcome import Outcome

from . import switch
from .acquire import acquire
from .attempt import Attempt
from .engine import Engine
from .error_text import message_of
from .execute import execute, lookup_outcome, run_unprotected, verify_first
from .interrupted import recover
from .job import NO_KEY, Job


class DetachedWork(Protocol):
    """Starts work on its own, and gives what waits for it: to stop waiting does not stop the work."""

    def start(self, work: Coroutine[Any, Any, Outcome[Any]]) -> Awaitable[Outcome[Any]]: ...


async def claim_detached(engine: Engine, job: Job, apart: DetachedWork) -> Attempt | Outcome[Any]:
    """The claim, whose work is yet to be begun; or what became of the job without one, run `apart` if at all."""
    done = lookup_outcome(engine, job)
    if done is not None:
        return done
    if switch.off or job.key is NO_KEY:
        return await apart.start(execute(engine, job))
    attempt = Attempt(engine, job)
    try:
        if not engine.opened:
            await engine.ready()
        found = await acquire(attempt)
        if found is attempt and attempt.record.ask_first:
            settled = await verify_first(attempt)
            return attempt if settled is None else settled
        return found
    except BaseException as error:
        await recover(engine, [attempt], error)
        if attempt.acquired or not isinstance(error, StoreError) or isinstance(error, NOT_DOWN):
            raise
        if job.policy.on_store_down != "run":
            raise
        reason = f"store down: {message_of(error)}"
    return await apart.start(run_unprotected(engine, job, reason))
