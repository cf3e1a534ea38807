"""`Once`, the sync client. Its methods are thin: the flows are in `engine` and the feature packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from onceward.engine.attempt import running_here
from onceward.operations.block import ClaimBlock
from onceward.operations.decorator import DecoratorSettings, Item, P, T, refuse_task
from onceward.operations.function import Decorator, Function, SkippingDecorator, call_sync, execute_sync
from onceward.operations.operation import KeySource, TenantSource
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import (
    OnDone,
    OnRunning,
    Settings,
)
from onceward.runtime.threads import ThreadRuntime, run

from .administration import Administration
from .features import Features
from .operation_decorator import OperationDecorator
from .refusals import refuse_undecoratable

if TYPE_CHECKING:
    from onceward.engine.stream import ItemOutcome
    from onceward.operations.async_function import AsyncFunction
    from onceward.operations.transaction import Within

    from .aio import AsyncOnce


class Once(Administration, Features, OperationDecorator[Decorator, SkippingDecorator]):
    """The sync client: runs work once per key.

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

    def _runtime(self) -> ThreadRuntime:
        return ThreadRuntime()

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncFunction[P, T]: ...  # type: ignore[overload-overlap]  # the first match is the one meant
    @overload
    def __call__(self, fn: Callable[P, T], /) -> Function[P, T]: ...
    @overload
    def __call__(
        self,
        *,
        on_running: Literal["skip"],
        on_done: OnDone = "replay",
        **choices: Unpack[DecoratorSettings],
    ) -> SkippingDecorator: ...
    @overload
    def __call__(
        self,
        *,
        on_running: OnRunning = "wait",
        on_done: Literal["skip"],
        **choices: Unpack[DecoratorSettings],
    ) -> SkippingDecorator: ...
    @overload
    def __call__(
        self,
        *,
        on_running: Literal["wait", "raise"] = "wait",
        on_done: Literal["replay", "raise"] = "replay",
        **choices: Unpack[DecoratorSettings],
    ) -> Decorator: ...
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
        """Decorate a function: `@once`, or `@once(key="charge:{order_id}", window="24h")`.

        An async function becomes an `AsyncFunction`, which runs on `once.aio`.

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
            refuse_task(fn)
            if inspect.iscoroutinefunction(fn):
                return self.aio(key=key, name=name, version=version, tenant=tenant, **settings)(fn)
            refuse_undecoratable(fn)
            return Function(self, self.declare(fn, settings, key=key, name=name, version=version, tenant=tenant))

        return decorate if fn is None else decorate(fn)

    def _decorate_as(self, name: str, choices: Mapping[str, Any], fn: Callable[..., Any]) -> Any:
        from onceward.operations.table import declared_operation  # imported here, as in `map`

        refuse_task(fn)
        if inspect.iscoroutinefunction(fn):
            return self.aio.operation(name, **choices)(fn)
        refuse_undecoratable(fn)
        return Function(self, declared_operation(self, fn, name, choices))

    @property
    def aio(self) -> AsyncOnce:
        """An `AsyncOnce` on the same data, with its own connection."""
        from .aio import AsyncOnce, async_twin

        if not self._async_engines:
            self._async_engines.append(async_twin(self.engine))
        client = object.__new__(AsyncOnce)
        client.__dict__.update(self.__dict__, engine=self._async_engines[0], _operations=self._async_operations)
        return client

    def stop(self) -> None:
        """Stop claiming; running work continues. It may be called from a signal handler."""
        for engine in (self.engine, *self._async_engines):
            engine.stopping = True

    def run(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn(*args, **kwargs)` once under this key, and return its value.

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
        value: T = call_sync(self.engine, self.job(key, fn, args, kwargs))
        return value

    def outcome(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
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
        return execute_sync(self.engine, self.job(key, fn, args, kwargs))

    def map(
        self,
        fn: Callable[[Item], T],
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
            ConfigurationError: `fn` is decorated and you pass a key or settings, or `fn` is async.
            StoreUnavailable: The store does not answer.
        """
        from onceward.engine.many import execute_all  # imported here: few programs need it, and imports take time

        _, make = self.job_maker(fn, key, name, settings)
        return run(execute_all(self.engine, [make((item,), {}) for item in items]))

    def imap(
        self,
        fn: Callable[[Item], T],
        items: Iterable[Item],
        *,
        key: KeySource = None,
        name: str | None = None,
        **settings: Unpack[Settings],
    ) -> Generator[ItemOutcome[Item, T], None, None]:
        """Return an iterator like `map`: it reads items as needed, and yields each outcome as soon as it is known.

        If you stop early, close the iterator: it releases the keys whose work has not begun.

        Args:
            fn: The work. If it is decorated, its own key and settings are used.
            items: The inputs. An endless iterator is fine: at most 32 keys are claimed ahead.
            key: How to build the key from the arguments of `fn`, as in `@once(key=…)`.
            name: The operation that the keys belong to (default: module and name of the function).
            settings: Policy settings that override the client's defaults.

        Returns:
            An iterator of `ItemOutcome`. The order is that of completion; `index` is the position in the input.

        Raises:
            ConfigurationError: `fn` is decorated and you pass a key or settings, or `fn` is async.
        """
        from onceward.operations.streams import iterate  # imported here, as in `map`

        operation, make = self.job_maker(fn, key, name, settings)
        return iterate(self.engine, items, operation, make)

    def claim(
        self,
        key: Any,
        *,
        name: str | None = None,
        payload: Any = None,
        note: dict[str, str] | None = None,
        type: Any = Any,
        **settings: Unpack[Settings],
    ) -> ClaimBlock:
        """Return a block that owns the key while it runs: `with once.claim(key) as claim:`.

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
            The block. Entering it claims the key and returns a `Claim`.

        Raises:
            NotAcquired: When entering: the key is done, running, failed, parked, or has another payload.
            ConfigurationError: A setting is unknown, or applies only to functions.
        """
        return ClaimBlock(self.engine, self.claim_job(key, name, payload, note or {}, settings, type=type))

    def within(self, connection: Any) -> Within:
        """Return a block that works in your transaction: `with once.within(connection) as tx:`.

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
        from onceward.operations.transaction import Within  # imported here, as in `map`

        return Within(self, connection)

    def close(self, timeout: float = 10.0) -> None:
        """Stop claiming, wait for running work, stop the heartbeat, and close the store.

        Args:
            timeout: How many seconds to wait for running work. Work that takes longer is reported; its key is free when
                its lease expires. If the work itself calls `close`, or a signal handler that interrupts it does,
                `close` does not wait for that work. It leaves the store open, so that the result can be stored. Call
                `close` again afterwards.
        """
        from onceward.locks.flow import held_here  # imported here, as in `map`

        self.stop()
        engines = (self.engine, *self._async_engines)
        drained = self.heartbeat.drain(
            timeout,
            own=held_here(),
            callers=running_here(),
            has_claims_in_flight=lambda: any(engine.claims_in_flight for engine in engines),
        )
        if not drained:
            return
        for engine in engines:
            engine.closed = True
        self.heartbeat.close()
        self.background.close()
        if self._async_engines:
            from .aio import close_async_twin

            close_async_twin(self._async_engines[0])
        run(self.engine.store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
