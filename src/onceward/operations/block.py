"""The `with` and `async with` block of a claim."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from onceward.engine.attempt import Attempt
from onceward.engine.block import abandon_block, enter, enter_failed, leave, leave_interrupted, new_attempt
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.errors import ConfigurationError, Reentrant
from onceward.runtime.bridge import run

from .abandoned import DropWatcher, unwatch, watch
from .claim import AsyncClaim, Claim


class SingleEntry:
    """Allows one entry of a block at a time: a second one would end the claim of the first.

    A signal handler may raise wherever a function begins, so the attempt is stored here before the key is claimed. If
    leaving the block is interrupted too, the claim is abandoned when the block is garbage-collected. The claim refers
    to its block, so that does not happen while user code still holds the claim.
    """

    attempt: Attempt | None = None
    _watch: DropWatcher | None = None

    def __init__(self) -> None:
        self._busy = threading.Lock()

    def reserve(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise Reentrant("this block has already been entered", hint="call once.claim(key) for each `with`")

    def begin(self, engine: Engine, job: Job) -> Attempt:
        self.reserve()
        return self.set_attempt(new_attempt(engine, job))

    def set_attempt(self, attempt: Attempt) -> Attempt:
        self._unwatch()
        self._watch = watch(self, partial(abandon_block, attempt))
        self.attempt = attempt
        return attempt

    def _unwatch(self) -> None:
        if self._watch is not None:
            unwatch(self._watch)
            self._watch = None

    def release(self) -> None:
        self.attempt = None
        self._unwatch()
        if self._busy.locked():
            self._busy.release()

    def raise_not_entered(self) -> NoReturn:
        raise ConfigurationError("this block was not entered", hint="with once.claim(key) as claim: …")


class ClaimBlock:
    """The `with` block of a claim. It leaves the record COMPLETED, FAILED or PARKED, whatever happens inside."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._entry = SingleEntry()

    def __enter__(self) -> Claim:
        attempt = self._entry.begin(self._engine, self._job)
        try:
            run(enter(attempt))
            return Claim(attempt, self)
        except BaseException as error:
            self._entry.release()
            run(enter_failed(attempt, error))
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        attempt = self._entry.attempt or self._entry.raise_not_entered()
        try:
            run(leave(attempt, error))
        except BaseException as interrupt:
            run(leave_interrupted(attempt, error, interrupt))
            raise
        finally:
            self._entry.release()


class AsyncClaimBlock:
    """The `async with` block of a claim. It leaves the record COMPLETED, FAILED or PARKED, whatever happens inside.

    `job` may be a function that builds the job. It runs in a worker thread, for keys that take long to hash.
    """

    def __init__(self, engine: Engine, job: Job | Callable[[], Job]) -> None:
        self._engine = engine
        self._job = job
        self._entry = SingleEntry()

    async def __aenter__(self) -> AsyncClaim:
        job = self._job if isinstance(self._job, Job) else await self._engine.runtime.compute(self._job)
        attempt = self._entry.begin(self._engine, job)
        try:
            await enter(attempt)
            return AsyncClaim(attempt, self)
        except BaseException as error:
            self._entry.release()
            await enter_failed(attempt, error)
            raise

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        attempt = self._entry.attempt or self._entry.raise_not_entered()
        try:
            await leave(attempt, error)
        except BaseException as interrupt:
            await leave_interrupted(attempt, error, interrupt)
            raise
        finally:
            self._entry.release()
