"""`with` blocks, in both colours: a claim, and work inside the caller's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

from .bridge import run
from .claims import AsyncClaim, Claim
from .core.block import enter, leave
from .core.engine import Engine
from .core.held import Held
from .core.job import Job
from .core.within import execute_within, join, part
from .decorator import P, T, answer_of
from .errors import ConfigurationError
from .model.outcome import Outcome
from .ports import JoinedStore

if TYPE_CHECKING:
    from .aio import AsyncFunction, AsyncOnce
    from .client import Function, Once


class ClaimBlock:
    """The block of a claim. It ends COMPLETED, FAILED or PARKED, whatever happens inside."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._held: list[Held] = []

    def __enter__(self) -> Claim:
        self._held.append(run(enter(self._engine, self._job)))
        return Claim(self._held[-1])

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(leave(self._held.pop(), error))


class AsyncClaimBlock:
    """The block of a claim. It ends COMPLETED, FAILED or PARKED, whatever happens inside."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._held: list[Held] = []

    async def __aenter__(self) -> AsyncClaim:
        self._held.append(await enter(self._engine, self._job))
        return AsyncClaim(self._held[-1])

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await leave(self._held.pop(), error)


class Joined:
    """What a transaction block knows, in both colours."""

    def __init__(self, engine: Engine, connection: Any) -> None:
        self.engine = engine
        self.connection = connection
        self.since = engine.world.monotonic()
        self._store: JoinedStore | None = None

    @property
    def store(self) -> JoinedStore:
        if self._store is None:
            raise ConfigurationError("within() works as a block", hint="with once.within(connection) as tx: …")
        return self._store

    async def enter(self) -> None:
        self._store = await join(self.engine, self.connection)

    async def leave(self, error: BaseException | None) -> None:
        store, self._store = self.store, None
        if error is None:
            await part(self.engine, store, self.since)


class Within:
    """The caller's own transaction. Nothing is committed here: that is the caller's word."""

    def __init__(self, once: Once, connection: Any) -> None:
        self._once = once
        self._joined = Joined(once.engine, connection)

    def __enter__(self) -> Self:
        run(self._joined.enter())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(self._joined.leave(error))

    def run(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """fn(*args) once under this key, in this transaction."""
        return answer_of(self.outcome(key, fn, *args, **kwargs), self._once.policy)

    def outcome(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """As `run`, but the `Outcome`."""
        return run(execute_within(self._joined.engine, self._joined.store, self._once.job(key, fn, args, kwargs)))

    def call(self, fn: Function[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """A decorated function, with its own key and choices, in this transaction."""
        value: T = answer_of(
            run(execute_within(self._joined.engine, self._joined.store, fn.job(args, kwargs))), fn.policy
        )
        return value


class AsyncWithin:
    """The caller's own transaction. Nothing is committed here: that is the caller's word."""

    def __init__(self, once: AsyncOnce, connection: Any) -> None:
        self._once = once
        self._joined = Joined(once.engine, connection)

    async def __aenter__(self) -> Self:
        await self._joined.enter()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._joined.leave(error)

    async def run(self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await fn(*args) once under this key, in this transaction."""
        return answer_of(await self.outcome(key, fn, *args, **kwargs), self._once.policy)

    async def outcome(
        self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Outcome[T]:
        """As `run`, but the `Outcome`."""
        return await execute_within(self._joined.engine, self._joined.store, self._once.job(key, fn, args, kwargs))

    async def call(self, fn: AsyncFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """A decorated function, with its own key and choices, in this transaction."""
        value: T = answer_of(
            await execute_within(self._joined.engine, self._joined.store, fn.job(args, kwargs)), fn.policy
        )
        return value
