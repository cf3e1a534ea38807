"""The `with` block of a claim, in both colours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from onceward.engine.attempt import Attempt
from onceward.engine.block import abandon, enter, leave, left, refused, unentered
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.errors import ConfigurationError, Reentrant
from onceward.runtime.bridge import run

from .abandoned import DropWatcher, unwatch, watch
from .claim import AsyncClaim, Claim


class OneUse:
    """One owner at a time in a block: a second one would end the claim of the first.

    A signal may raise wherever a function begins, so the claim stands here before it is asked for. What nobody can end
    any more, because the end itself was interrupted, lapses with the block, which lives as long as its claim is known.
    """

    attempt: Attempt | None = None
    _watch: DropWatcher | None = None

    def __init__(self) -> None:
        self._busy = threading.Lock()

    def occupy(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise Reentrant("this block is entered already", hint="call once.claim(key) for each `with`")

    def begin(self, engine: Engine, job: Job) -> Attempt:
        self.occupy()
        return self.hold(unentered(engine, job))

    def hold(self, attempt: Attempt) -> Attempt:
        self._unwatch()
        self._watch = watch(self, partial(abandon, attempt))
        self.attempt = attempt
        return attempt

    def _unwatch(self) -> None:
        if self._watch is not None:
            unwatch(self._watch)
            self._watch = None

    def end(self) -> None:
        self.attempt = None
        self._unwatch()
        if self._busy.locked():
            self._busy.release()

    def refuse(self) -> Attempt:
        raise ConfigurationError("this block was not entered", hint="with once.claim(key) as claim: …")


class ClaimBlock:
    """The block of a claim. It ends COMPLETED, FAILED or PARKED, whatever happens inside."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._use = OneUse()

    def __enter__(self) -> Claim:
        attempt = self._use.begin(self._engine, self._job)
        try:
            run(enter(attempt))
            return Claim(attempt, self)
        except BaseException as error:
            self._use.end()
            run(refused(attempt, error))
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        attempt = self._use.attempt or self._use.refuse()
        try:
            run(leave(attempt, error))
        except BaseException as interrupt:
            run(left(attempt, error, interrupt))
            raise
        finally:
            self._use.end()


class AsyncClaimBlock:
    """The block of a claim. It ends COMPLETED, FAILED or PARKED, whatever happens inside.

    A job that takes long to make is given as what makes it.
    """

    def __init__(self, engine: Engine, job: Job | Callable[[], Job]) -> None:
        self._engine = engine
        self._job = job
        self._use = OneUse()

    async def __aenter__(self) -> AsyncClaim:
        job = self._job if isinstance(self._job, Job) else await self._engine.runtime.think(self._job)
        attempt = self._use.begin(self._engine, job)
        try:
            await enter(attempt)
            return AsyncClaim(attempt, self)
        except BaseException as error:
            self._use.end()
            await refused(attempt, error)
            raise

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        attempt = self._use.attempt or self._use.refuse()
        try:
            await leave(attempt, error)
        except BaseException as interrupt:
            await left(attempt, error, interrupt)
            raise
        finally:
            self._use.end()
