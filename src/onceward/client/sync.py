"""`Once`, the sync client. Its methods are thin: the flows are in `engine` and the feature packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

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
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime

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
    """The sync client: does work once per key.

    `store` is a URL or a store object (default: $ONCEWARD_STORE_URL, else sqlite:///onceward.db). `app` and `tenant`
    are part of every key. `cache` is how many completed results this process caches. `counters` counts outcomes by
    scope and hour in the store. With `fingerprint_key`, at least 16 secret bytes, fingerprints are HMACs, so that a
    reader of the store cannot test guesses about payloads. `mode` is "enforce" (default), "observe" or "off";
    $ONCEWARD_MODE overrides it. The other arguments are default policy settings.

    In every method, `key` is any value that identifies the work (`name` is the operation that it belongs to), `fn` is
    the work with its `args` and `kwargs`, and `settings` and `choices` override the client's defaults.

    Every call may raise `StoreUnavailable` or another `StoreError`; then nothing was run. Calls that run work raise a
    subclass of `NotAcquired` if they may not run it, `OutcomeUnknown` if the store did not confirm the result, and
    otherwise what the work itself raises. Settings that cannot work raise `ConfigurationError`.
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
        """Decorate a function: `@once`, or `@once(key="charge:{order_id}", …)`. Async functions run on `once.aio`.

        `key` builds the key from the arguments. `name` is the operation (default: module and name of the function).
        A new `version` starts with new keys. `tenant` separates customers. Return the decorated function.
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
        """Call fn(*args) once under this key. Return its value, or raise an error that says why there is none."""
        value: T = call_sync(self.engine, self.job(key, fn, args, kwargs))
        return value

    def outcome(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Like `run`, but return the `Outcome`."""
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
        """Call fn(item) once per key, for each of `items`. Return the outcomes in input order.

        Keys are claimed in batches. An item that fails does not stop the others, and `map` does not raise for it.
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
        """Return an iterator like `map`: an `ItemOutcome` for each of `items` as soon as it is known, read as needed.

        If you stop early, close the iterator: it releases the keys whose work has not begun.
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

        `payload` is compared with that of earlier claims. `note` holds small facts for the record. `type` is the type
        of the result that `claim.complete` records; without it, the result keeps its own type. The block raises
        `NotAcquired` if the key is done, running, failed or parked.
        """
        return ClaimBlock(self.engine, self.claim_job(key, name, payload, note or {}, settings, type=type))

    def within(self, connection: Any) -> Within:
        """Return a block that claims, runs and records in your transaction: `with once.within(connection) as tx:`.

        `connection` is a connection or session to the database where the records are. You commit or roll back.
        """
        from onceward.operations.transaction import Within  # imported here, as in `map`

        return Within(self, connection)

    def close(self, timeout: float = 10.0) -> None:
        """Stop claiming, let running work finish (up to `timeout` seconds), stop the heartbeat, close the store."""
        from onceward.locks.flow import held_here  # imported here, as in `map`

        self.stop()
        engines = (self.engine, *self._async_engines)
        self.heartbeat.drain(
            timeout, own=held_here(), has_claims_in_flight=lambda: any(engine.claims_in_flight for engine in engines)
        )
        for engine in engines:
            engine.closed = True
        self.heartbeat.close()
        if self.counters is not None:
            self.counters.close()
        if self._async_engines:
            from .aio import close_async_twin

            close_async_twin(self._async_engines[0])
        run(self.engine.store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
