"""`AsyncOnce`, the async client. Its methods are thin: the flows are the same as those of `Once`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, Self, Unpack, overload

from onceward.engine.attempt import running_here
from onceward.engine.engine import Engine
from onceward.engine.many import execute_all
from onceward.engine.runner import execute, value_or_raise
from onceward.engine.stream import ItemOutcome
from onceward.errors import StoreError
from onceward.keys.small import is_small
from onceward.operations.async_function import AsyncDecorator, AsyncFunction, SkippingAsyncDecorator
from onceward.operations.block import AsyncClaimBlock
from onceward.operations.decorator import DecoratorSettings, Item, P, T
from onceward.operations.job_builder import is_quick, is_quick_call, job_for_key, jobs_of
from onceward.operations.operation import KeySource, TenantSource
from onceward.operations.streams import iterate_async
from onceward.operations.table import declared_operation
from onceward.operations.transaction import AsyncWithin
from onceward.protocol.duration import Duration
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import (
    OnDone,
    OnRunning,
    Settings,
)
from onceward.recovery.decision import Recovery
from onceward.recovery.sweeper import OnRecovered
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.schedules.runner import OnResult
from onceward.stores.cached import CachedStore

from .async_administration import AsyncAdministration
from .async_features import AsyncFeatures
from .declarations import DeclaringEngine
from .operation_decorator import OperationDecorator
from .refusals import refuse_sync


class AsyncOnce(AsyncAdministration, AsyncFeatures, OperationDecorator[AsyncDecorator, SkippingAsyncDecorator]):
    """The async client: runs work once per key. Its methods are those of `Once`, awaited.

    In every method, `key` is any value that identifies the work (`name` is the operation that it belongs to), `fn` is
    the work with its `args` and `kwargs`, and `settings` and `choices` override the client's defaults.

    Every call may raise `StoreUnavailable` or another `StoreError`; then nothing was run. Calls that run work raise a
    subclass of `NotAcquired` if they may not run it, `OutcomeUnknown` if the store did not confirm the result, and
    otherwise what the work itself raises. Settings that cannot work raise `ConfigurationError`.

    Args:
        store: A URL or a store object. The default is $ONCEWARD_STORE_URL, else the `store` that the file `operations`
            names, else `sqlite:///onceward.db`.
        app: The application. It is part of every key, so that applications can share a store.
        tenant: The customer, for clients that serve one customer only. It is part of every key.
        cipher: Encrypts stored results and inputs, such as `AesGcm(key)`.
        accept_plain: Whether to replay unencrypted results, which were stored before you passed a `cipher`.
        fingerprint_key: At least 16 secret bytes. With it, fingerprints are HMACs, so that a reader of the store cannot
            test guesses about payloads.
        cache: How many completed results this process caches. 0 caches none.
        counters: Whether to count outcomes by scope and hour in the store, for `stats` and `check`.
        history: What to keep of earlier attempts, for the console and `explain`: `"problems"` (default), `"all"` or
            `"off"`. It is written in the background, and costs calls without problems nothing.
        operations: Declared operations for `@once.operation(name)`: a file such as `"onceward.toml"`, a mapping, or an
            `Operations` object.
        mode: `"enforce"` (default), `"observe"` or `"off"`. $ONCEWARD_MODE overrides it.
        defaults: Policy settings for all work of this client, such as `window` and `lease`.
    """

    _is_async = True

    def _runtime(self) -> AsyncioRuntime:
        return AsyncioRuntime()

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncFunction[P, T]: ...
    @overload
    def __call__(
        self,
        *,
        on_running: Literal["skip"],
        on_done: OnDone = "replay",
        **choices: Unpack[DecoratorSettings],
    ) -> SkippingAsyncDecorator: ...
    @overload
    def __call__(
        self,
        *,
        on_running: OnRunning = "wait",
        on_done: Literal["skip"],
        **choices: Unpack[DecoratorSettings],
    ) -> SkippingAsyncDecorator: ...
    @overload
    def __call__(
        self,
        *,
        on_running: Literal["wait", "raise"] = "wait",
        on_done: Literal["replay", "raise"] = "replay",
        **choices: Unpack[DecoratorSettings],
    ) -> AsyncDecorator: ...
    def __call__(  # type: ignore[misc]  # mypy does not see that **settings takes what Choices unpacks to
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        key: KeySource = None,
        name: str | None = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        **settings: Any,
    ) -> Any:
        """Decorate an async function: `@once`, or `@once(key="charge:{order_id}", window="24h")`.

        Decorating a sync function raises `ConfigurationError`: use `Once` for it.

        Args:
            fn: The function, if `@once` is used without parentheses.
            key: How to build the key from the arguments: a template, a list of templates (the first one whose
                fields are all present is used), a callable, or a source such as `Payload`. By default all arguments
                form the key.
            name: The operation that the keys belong to. The default is the module and name of the function, so renaming
                the function starts with new keys.
            version: Part of the key. Change it if earlier results must no longer be replayed.
            tenant: Separates customers. A template such as `"{org_id}"`, or a callable that gets the arguments.
            settings: Policy settings for this function. They override the client's defaults.

        Returns:
            The decorated function, with the same signature. Without `fn`, a decorator.

        Raises:
            ConfigurationError: The key names an unknown argument, or the settings cannot work together.
        """

        def decorate(fn: Callable[..., Any]) -> Any:
            refuse_sync(fn)
            chosen = {"key": key, "name": name, "version": version, "tenant": tenant}
            return AsyncFunction(self, self.declare(fn, settings, is_async=True, **chosen))

        return decorate if fn is None else decorate(fn)

    def _decorate_as(self, name: str, choices: Mapping[str, Any], fn: Callable[..., Any]) -> Any:
        refuse_sync(fn)
        return AsyncFunction(self, declared_operation(self, fn, name, choices, is_async=True))

    async def run(self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await `fn(*args, **kwargs)` once under this key, and return its value.

        If the key is completed, the stored value is returned and `fn` is not called. If another worker is processing
        the key, the call waits for its result, up to the setting `wait`.

        Args:
            key: Any value that identifies the work, such as `"order-7"` or `("order", 7)`.
            fn: The work. It becomes part of the fingerprint: another function under the same key raises
                `PayloadMismatch`.
            args: Positional arguments of `fn`.
            kwargs: Keyword arguments of `fn`.

        Returns:
            What `fn` returned, now or in an earlier call.

        Raises:
            NotAcquired: The key is running, parked, failed or has another payload. `fn` was not called.
            OutcomeUnknown: `fn` was called, but the store did not confirm its result.
            StoreUnavailable: The store does not answer. `fn` was not called.
            Exception: Whatever `fn` itself raises.
        """
        quick = is_quick_call(key, fn, args, kwargs)
        job = self.job(key, fn, args, kwargs) if quick else await job_for_key(self, key, fn, args, kwargs)
        value: T = value_or_raise(await execute(self.engine, job), job.policy)
        return value

    async def outcome(
        self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Outcome[T]:
        """Like `run`, but return the `Outcome`: what happened, under which key, in which attempt.

        Use it if duplicates and failures are ordinary results for you, not exceptions.

        Args:
            key: Any value that identifies the work.
            fn: The work.
            args: Positional arguments of `fn`.
            kwargs: Keyword arguments of `fn`.

        Returns:
            `Executed`, `Replayed`, `Running`, `Failed`, `Mismatch`, `Parked` or `Unknown`. An exception of `fn` is in
            `Failed.exception`.

        Raises:
            StoreUnavailable: The store does not answer. `fn` was not called.
        """
        return await execute(self.engine, await job_for_key(self, key, fn, args, kwargs))

    async def map(
        self,
        fn: Callable[[Item], Coroutine[Any, Any, T]],
        items: Iterable[Item],
        *,
        key: KeySource = None,
        name: str | None = None,
        **settings: Unpack[Settings],
    ) -> list[Outcome[T]]:
        """Call `fn(item)` once per key for each item. Keys are claimed in batches.

        An item that fails does not stop the others, and `map` does not raise for it.

        Args:
            fn: The work. If it is decorated, its own key and settings are used, and you must not pass others.
            items: The inputs. All of them are read before the first one is processed; for long inputs use `imap`.
            key: How to build the key from the arguments of `fn`, as in `@once(key=…)`.
            name: The operation that the keys belong to (default: module and name of the function).
            settings: Policy settings that override the client's defaults.

        Returns:
            One outcome per item, in input order.

        Raises:
            ConfigurationError: `fn` is decorated and you pass a key or settings, or `fn` is not async.
            StoreUnavailable: The store does not answer.
        """
        operation, make = self.job_maker(fn, key, name, settings)
        return await execute_all(self.engine, await jobs_of(self.engine.runtime, items, operation, make))

    def imap(
        self,
        fn: Callable[[Item], Coroutine[Any, Any, T]],
        items: Iterable[Item],
        *,
        key: KeySource = None,
        name: str | None = None,
        **settings: Unpack[Settings],
    ) -> AsyncGenerator[ItemOutcome[Item, T], None]:
        """Return an iterator like `map`: it reads items as needed, and yields each outcome as soon as it is known.

        If you stop early, close the iterator (`aclose()`): it releases the keys whose work has not begun.

        Args:
            fn: The work. If it is decorated, its own key and settings are used.
            items: The inputs. An endless iterator is fine: at most 32 keys are claimed ahead.
            key: How to build the key from the arguments of `fn`, as in `@once(key=…)`.
            name: The operation that the keys belong to (default: module and name of the function).
            settings: Policy settings that override the client's defaults.

        Returns:
            An async iterator of `ItemOutcome`. The order is that of completion; `index` is the position in the input.

        Raises:
            ConfigurationError: `fn` is decorated and you pass a key or settings, or `fn` is not async.
        """
        operation, make = self.job_maker(fn, key, name, settings)
        return iterate_async(self.engine, items, operation, make)

    def claim(
        self,
        key: Any,
        *,
        name: str | None = None,
        payload: Any = None,
        note: dict[str, str] | None = None,
        type: Any = Any,
        **settings: Unpack[Settings],
    ) -> AsyncClaimBlock:
        """Return a block that owns the key while it runs: `async with once.claim(key) as claim:`.

        Call `claim.complete(value)` in the block to record a result. If the block ends without it, the result is None.
        If the block raises, the attempt has failed.

        Args:
            key: Any value that identifies the work.
            name: The operation that the key belongs to. By default, all keys given directly share one operation.
            payload: Compared with the payload of earlier claims of this key. A different one raises `PayloadMismatch`.
            note: Small facts to keep in the record, such as `{"order": "7"}`.
            type: The type of the result that `claim.complete` records. By default, the result keeps its own type.
            settings: Policy settings that override the client's defaults.

        Returns:
            The block. Entering it claims the key and returns an `AsyncClaim`.

        Raises:
            NotAcquired: When entering: the key is done, running, failed, parked, or has another payload.
            ConfigurationError: A setting is unknown, or applies only to functions.
        """
        job = functools.partial(self.claim_job, key, name, payload, note or {}, settings, type=type)
        return AsyncClaimBlock(self.engine, job() if is_quick(key) and is_small(payload) else job)

    def within(self, connection: Any) -> AsyncWithin:
        """Return a block that works in your transaction: `async with once.within(connection) as tx:`.

        Inside, `tx.run`, `tx.outcome` and `tx.call` write their records through your connection, so your rows and the
        records commit or roll back together. Onceward never commits: you do.

        Args:
            connection: A connection or session to the database that holds the records.

        Returns:
            The block.

        Raises:
            ConfigurationError: When entering: the store cannot join transactions, or the connection is not to its
                database.
        """
        return AsyncWithin(self, connection)

    async def close(self, timeout: float = 10.0) -> None:
        """Stop claiming, wait for running work, stop the heartbeat, and close the store.

        For `once.aio`, this closes only the async part: `once` can still be used, and must be closed itself.

        Args:
            timeout: How many seconds to wait for running work. Work that takes longer is reported; its key is free when
                its lease expires. If the work itself calls `close`, or a signal handler that interrupts it does,
                `close` does not wait for that work. It leaves the store open, so that the result can be stored. Call
                `close` again afterwards.
        """
        from onceward.locks.flow import held_here  # imported here, as in `map`

        self.stop()
        is_part_of_once = self.engine in self._async_engines  # `once.aio`: the heartbeat also renews leases of `once`
        drained = await asyncio.to_thread(
            self.heartbeat.drain,
            timeout,
            own=held_here(),
            callers=running_here(),
            has_claims_in_flight=lambda: bool(self.engine.claims_in_flight),
            engine=self.engine if is_part_of_once else None,
        )
        if not drained:
            return
        self.engine.closed = True
        if not is_part_of_once:
            await asyncio.to_thread(self.heartbeat.close)
            await asyncio.to_thread(self.background.close)
        await self.engine.store.close()
        close_loop(self.engine)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def run_until_stopped(once: AsyncOnce, on_result: OnResult | None) -> None:
    """Run the client's schedules on a new event loop until the client is stopped, then close it."""

    async def main() -> None:
        async with once:
            await once.run_schedules(on_result=on_result)

    asyncio.run(main())


def recover_until_stopped(once: AsyncOnce, every: Duration | None, on_result: OnRecovered | None) -> Recovery:
    """Run `once.recover` on a new event loop until it returns, then close the client."""

    async def main() -> Recovery:
        async with once:
            return await once.recover(every=every, on_result=on_result)

    return asyncio.run(main())


def async_twin(engine: DeclaringEngine) -> DeclaringEngine:
    """Return the async engine of a sync client: same data, heartbeat and events, but its own connection."""
    store = engine.store.clone_with_cache() if isinstance(engine.store, CachedStore) else engine.store.clone()
    twin = DeclaringEngine(store, AsyncioRuntime(), engine.heartbeat, engine.bus, engine.owner)
    twin.declared = engine.declared
    twin.open_transactions, twin.rollout = engine.open_transactions, engine.rollout
    return twin


def close_async_twin(engine: Engine) -> None:
    """Close the async engine of a sync client, without an event loop. The store may be down."""
    if engine.opened:
        with suppress(StoreError):
            run(engine.store.open(ThreadRuntime()))  # `close` then uses this runtime: the event loop may have ended
        run(engine.store.close())
    close_loop(engine)


def close_loop(engine: Engine) -> None:
    if isinstance(engine.runtime, AsyncioRuntime):
        engine.runtime.close()
