"""The `with` block of a claim, in both colours."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .bridge import run
from .claims import AsyncClaim, Claim
from .core.block import enter, leave, left
from .core.engine import Engine
from .core.held import Held
from .core.job import Job
from .errors import ConfigurationError, Reentrant


class OneUse:
    """One owner at a time in a block: a second one would end the claim of the first."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._held: Held | None = None

    def __enter__(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise Reentrant("this block is entered already", hint="call once.claim(key) for each `with`")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._held is None:  # it was not granted
            self._busy.release()

    def begin(self, held: Held) -> Held:
        self._held = held
        return held

    def end(self) -> Held:
        held, self._held = self._held, None
        if held is None:
            raise ConfigurationError("this block was not entered", hint="with once.claim(key) as claim: …")
        self._busy.release()
        return held


class ClaimBlock:
    """The block of a claim. It ends COMPLETED, FAILED or PARKED, whatever happens inside."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._use = OneUse()

    def __enter__(self) -> Claim:
        with self._use:
            return Claim(self._use.begin(run(enter(self._engine, self._job))))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        held = self._use.end()
        try:
            run(leave(held, error))
        except BaseException as interrupt:
            run(left(held, error, interrupt))
            raise


class AsyncClaimBlock:
    """The block of a claim. It ends COMPLETED, FAILED or PARKED, whatever happens inside.

    A job that takes long to make is given as what makes it.
    """

    def __init__(self, engine: Engine, job: Job | Callable[[], Job]) -> None:
        self._engine = engine
        self._job = job
        self._use = OneUse()

    async def __aenter__(self) -> AsyncClaim:
        with self._use:
            job = self._job if isinstance(self._job, Job) else await self._engine.world.think(self._job)
            return AsyncClaim(self._use.begin(await enter(self._engine, job)))

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        held = self._use.end()
        try:
            await leave(held, error)
        except BaseException as interrupt:
            await left(held, error, interrupt)
            raise
