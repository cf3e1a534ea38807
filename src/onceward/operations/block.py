"""The `with` and `async with` block of a claim."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

from onceward.engine.attempt import Attempt
from onceward.engine.block import enter, leave
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.errors import ConfigurationError, Reentrant
from onceward.runtime.threads import run

from .claim import AsyncClaim, Claim


class SingleEntry:
    """Allows one entry of a block at a time: a second one would end the claim of the first."""

    attempt: Attempt | None = None

    def __init__(self) -> None:
        self._busy = threading.Lock()

    def reserve(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise Reentrant("this block has already been entered", hint="call once.claim(key) for each `with`")

    def release(self) -> None:
        self.attempt = None
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
        self._entry.reserve()
        attempt = Attempt(self._engine, self._job)
        try:
            run(enter(attempt))
        except BaseException:
            self._entry.release()
            raise
        self._entry.attempt = attempt
        return Claim(attempt)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        attempt = self._entry.attempt or self._entry.raise_not_entered()
        try:
            run(leave(attempt, error))
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
        self._entry.reserve()
        attempt = Attempt(self._engine, job)
        try:
            await enter(attempt)
        except BaseException:
            self._entry.release()
            raise
        self._entry.attempt = attempt
        return AsyncClaim(attempt)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        attempt = self._entry.attempt or self._entry.raise_not_entered()
        try:
            await leave(attempt, error)
        finally:
            self._entry.release()
