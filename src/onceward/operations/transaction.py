"""`once.within(connection)`: work inside the caller's own transaction, sync and async."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

from onceward.engine.engine import Engine
from onceward.engine.runner import value_or_raise
from onceward.engine.within import Transaction, execute_within, finish_transaction, join
from onceward.errors import ConfigurationError
from onceward.protocol.capabilities import JoinedStore
from onceward.protocol.outcome import Outcome
from onceward.runtime.threads import run

from .decorator import P, T
from .job_builder import job_for_key, job_of

if TYPE_CHECKING:
    from onceward.client.aio import AsyncOnce
    from onceward.client.sync import Once

    from .async_function import AsyncFunction
    from .function import Function

COMMIT_STATUS_TIMEOUT = 30.0  # seconds to wait for the end of a transaction whose COMMIT got no reply


class TransactionBlock:
    """The state of a transaction block, shared by the sync and the async one."""

    def __init__(self, engine: Engine, connection: Any) -> None:
        self.engine = engine
        self.connection = connection
        self._transaction: Transaction | None = None
        self._left_store: JoinedStore | None = None

    @property
    def transaction(self) -> Transaction:
        if self._transaction is None:
            raise ConfigurationError(
                "within() must be used as a `with` block", hint="with once.within(connection) as tx: …"
            )
        return self._transaction

    async def enter(self) -> None:
        self._transaction = await join(self.engine, self.connection)

    async def committed(self) -> bool:
        """Wait for the caller's transaction to end, and return whether it was committed."""
        store, joined = self.engine.store, self._left_store
        if joined is None or store.commits is None:
            raise ConfigurationError(
                f"{store.name} cannot tell how a transaction ended",
                hint="call committed() after the block, with a postgresql://… store",
            )
        return joined.number is not None and await store.commits.committed(joined.number, timeout=COMMIT_STATUS_TIMEOUT)

    async def leave(self, error: BaseException | None) -> None:
        transaction, self._transaction = self.transaction, None
        self._left_store = transaction.store
        transaction.leave()
        if error is None:
            await finish_transaction(self.engine, transaction)


class Within:
    """The caller's own transaction. Onceward never commits it; the caller does."""

    def __init__(self, once: Once, connection: Any) -> None:
        self._once = once
        self._joined = TransactionBlock(once.engine, connection)

    def __enter__(self) -> Self:
        run(self._joined.enter())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(self._joined.leave(error))

    def committed(self) -> bool:
        """Return whether your transaction was committed, even if the reply to its COMMIT was lost. PostgreSQL only.

        It returns False if nothing was written through this block.
        """
        return run(self._joined.committed())

    def run(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call fn(*args) once under this key, in this transaction."""
        return value_or_raise(self.outcome(key, fn, *args, **kwargs), self._once.policy)

    def outcome(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Like `run`, but return the `Outcome`."""
        return run(execute_within(self._joined.engine, self._joined.transaction, self._once.job(key, fn, args, kwargs)))

    def call(self, fn: Function[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a decorated function, with its own key and options, in this transaction."""
        value: T = value_or_raise(
            run(execute_within(self._joined.engine, self._joined.transaction, fn.job(args, kwargs))), fn.policy
        )
        return value


class AsyncWithin:
    """The caller's own transaction. Onceward never commits it; the caller does."""

    def __init__(self, once: AsyncOnce, connection: Any) -> None:
        self._once = once
        self._joined = TransactionBlock(once.engine, connection)

    async def __aenter__(self) -> Self:
        await self._joined.enter()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._joined.leave(error)

    async def committed(self) -> bool:
        """Return whether your transaction was committed, even if the reply to its COMMIT was lost. PostgreSQL only.

        It returns False if nothing was written through this block.
        """
        return await self._joined.committed()

    async def run(self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await fn(*args) once under this key, in this transaction."""
        return value_or_raise(await self.outcome(key, fn, *args, **kwargs), self._once.policy)

    async def outcome(
        self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Outcome[T]:
        """Like `run`, but return the `Outcome`."""
        job = await job_for_key(self._once, key, fn, args, kwargs)
        return await execute_within(self._joined.engine, self._joined.transaction, job)

    async def call(self, fn: AsyncFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a decorated function, with its own key and options, in this transaction."""
        job = await job_of(fn, args, kwargs)
        value: T = value_or_raise(await execute_within(self._joined.engine, self._joined.transaction, job), fn.policy)
        return value
