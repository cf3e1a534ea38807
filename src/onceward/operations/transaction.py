"""Work inside the caller's own transaction, in both colours."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

from onceward.engine.engine import Engine
from onceward.engine.within import Transaction, execute_within, join, part
from onceward.errors import ConfigurationError
from onceward.protocol.capabilities import JoinedStore, RemembersCommits
from onceward.protocol.outcome import Outcome
from onceward.runtime.bridge import run

from .decorator import P, T, answer_of
from .job_builder import job_of, job_under

if TYPE_CHECKING:
    from onceward.client.aio import AsyncOnce
    from onceward.client.sync import Once

    from .async_function import AsyncFunction
    from .function import Function

DECIDED = 30.0  # seconds for a transaction whose end nobody saw to end


class Joined:
    """What a transaction block knows, in both colours."""

    def __init__(self, engine: Engine, connection: Any) -> None:
        self.engine = engine
        self.connection = connection
        self._transaction: Transaction | None = None
        self._left: JoinedStore | None = None

    @property
    def transaction(self) -> Transaction:
        if self._transaction is None:
            raise ConfigurationError("within() works as a block", hint="with once.within(connection) as tx: …")
        return self._transaction

    async def enter(self) -> None:
        self._transaction = await join(self.engine, self.connection)

    async def committed(self) -> bool:
        """How the caller's transaction ended, once it has."""
        store, left = self.engine.store, self._left
        if left is None or not isinstance(store, RemembersCommits):
            raise ConfigurationError(
                f"{store.name} cannot tell how a transaction ended", hint="ask after the block, on postgresql://…"
            )
        return left.number is not None and await store.committed(left.number, timeout=DECIDED)

    async def leave(self, error: BaseException | None) -> None:
        transaction, self._transaction = self.transaction, None
        self._left = transaction.store
        transaction.leave()
        if error is None:
            await part(self.engine, transaction)


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

    def committed(self) -> bool:
        """Whether your transaction was committed, also where the answer to its COMMIT was lost. PostgreSQL only.

        False if nothing was written in it through this block.
        """
        return run(self._joined.committed())

    def run(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """fn(*args) once under this key, in this transaction."""
        return answer_of(self.outcome(key, fn, *args, **kwargs), self._once.policy)

    def outcome(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """As `run`, but the `Outcome`."""
        return run(execute_within(self._joined.engine, self._joined.transaction, self._once.job(key, fn, args, kwargs)))

    def call(self, fn: Function[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """A decorated function, with its own key and choices, in this transaction."""
        value: T = answer_of(
            run(execute_within(self._joined.engine, self._joined.transaction, fn.job(args, kwargs))), fn.policy
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

    async def committed(self) -> bool:
        """Whether your transaction was committed, also where the answer to its COMMIT was lost. PostgreSQL only.

        False if nothing was written in it through this block.
        """
        return await self._joined.committed()

    async def run(self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await fn(*args) once under this key, in this transaction."""
        return answer_of(await self.outcome(key, fn, *args, **kwargs), self._once.policy)

    async def outcome(
        self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Outcome[T]:
        """As `run`, but the `Outcome`."""
        job = await job_under(self._once, key, fn, args, kwargs)
        return await execute_within(self._joined.engine, self._joined.transaction, job)

    async def call(self, fn: AsyncFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """A decorated function, with its own key and choices, in this transaction."""
        job = await job_of(fn, args, kwargs)
        value: T = answer_of(await execute_within(self._joined.engine, self._joined.transaction, job), fn.policy)
        return value
