"""Work that continues even if its caller goes away: an HTTP client that disconnects, a server that times out.

If the caller goes away before the key is acquired, the claim is released. Afterwards the work runs independently, in a
task that the caller of this module starts. This module only claims the key, or runs work that needs no claim.
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
    """Starts work independently and returns an awaitable of its outcome. Cancelling the wait does not stop the work."""

    def start(self, work: Coroutine[Any, Any, Outcome[Any]]) -> Awaitable[Outcome[Any]]: ...


async def claim_detached(engine: Engine, job: Job, detached: DetachedWork) -> Attempt | Outcome[Any]:
    """Acquire the claim, without starting its work. Or return the outcome, if the job needs no claim or is refused."""
    done = lookup_outcome(engine, job)
    if done is not None:
        return done
    if switch.off or job.key is NO_KEY:
        return await detached.start(execute(engine, job))
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
    return await detached.start(run_unprotected(engine, job, reason))
