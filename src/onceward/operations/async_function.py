"""Decorated async functions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Protocol, overload

from onceward.engine import records
from onceward.engine.entry import Entry
from onceward.engine.runner import execute, value_or_raise
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Finding, applied

from .decorator import BaseFunction, MethodParams, P, T
from .job_builder import job_of, key_of


class AsyncFunction(BaseFunction[P, T]):
    """An async function whose work is done once per key: what `@once` returns.

    `args` and `kwargs` of its methods are arguments of the function: they determine the key. If the key cannot be built
    from them, methods raise `InvalidKey` or `MissingKey`.
    """

    _is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)  # for asyncio.iscoroutinefunction of Python 3.11

    def __init__(self, client: Any, operation: Any, receiver: tuple[Any, ...] = ()) -> None:
        super().__init__(client, operation, receiver)
        mark_coroutine = getattr(inspect, "markcoroutinefunction", None)  # Python 3.12 or later
        if mark_coroutine is not None:
            mark_coroutine(self)
        else:
            _look_like_a_coroutine_function(self, operation.fn)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await the function once per key. Return its value, or the stored one of an earlier call.

        With `on_running="skip"` or `on_done="skip"`, such a call returns None.

        Raises:
            NotAcquired: The key is running, parked, failed or has another payload. The function was not called.
            OutcomeUnknown: The function was called, but the store did not confirm its result.
            StoreUnavailable: The store does not answer. The function was not called.
            Exception: Whatever the function itself raises.
        """
        quick = self.operation.is_quick(args, kwargs)
        job = self.job(args, kwargs) if quick else await job_of(self, args, kwargs)
        value: T = value_or_raise(await execute(self.engine, job), job.policy)
        return value

    async def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Call the function and return the `Outcome`: what happened, under which key, in which attempt."""
        return await execute(self.engine, await job_of(self, args, kwargs))

    async def read(self, *args: P.args, **kwargs: P.kwargs) -> Entry | None:
        """Return the record of a call with these arguments, or None. The function is not run."""
        return await records.read(self.engine, await key_of(self, args, kwargs), self.operation.codec)

    async def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget the record, so that the next call with these arguments runs. Return whether there was one.

        Raise `AlreadyRunning` if a worker still holds its lease. `once.forget(fn.key(…), force=True)` forgets it even
        so.
        """
        return await records.forget(self.engine, await key_of(self, args, kwargs), force=False)

    async def resolve(self, finding: applied | Finding, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Resolve the attempt of a call with these arguments that is PARKED, or whose worker died.

        Args:
            finding: `applied(value)` completes the record with this result. `not_applied` lets the next call run.
                `abandon` fails the record for good.
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.

        Raises:
            NotAcquired: The record for these arguments is missing, or it is neither PARKED, nor PENDING with an expired
                lease.
            ConfigurationError: The value does not have the return type of the function.
        """
        operation = self.operation
        await records.resolve(self.engine, await key_of(self, args, kwargs), finding, operation.codec, operation.policy)

    @overload
    def __get__(self, instance: None, owner: type) -> AsyncFunction[P, T]: ...
    @overload
    def __get__(
        self: AsyncFunction[Concatenate[Any, MethodParams], T], instance: object, owner: type
    ) -> AsyncFunction[MethodParams, T]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self._bind(instance)


def _look_like_a_coroutine_function(function: Any, wrapped: Any) -> None:
    """Set the attributes by which `inspect.iscoroutinefunction` of Python 3.11 recognises functions of other kinds."""
    code = getattr(wrapped, "__code__", None)
    is_coroutine = code is not None and code.co_flags & inspect.CO_COROUTINE
    function.__code__ = code if is_coroutine else _example.__code__
    function.__defaults__ = getattr(wrapped, "__defaults__", None)
    function.__kwdefaults__ = getattr(wrapped, "__kwdefaults__", None)


async def _example() -> None:
    """Any coroutine function: only the flags of its code count."""


class AsyncDecorator(Protocol):
    """The type of `@once(…)`: it keeps the function's types."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T]: ...


class SkippingAsyncDecorator(Protocol):
    """The type of `@once(…)` with `skip`: the call may return None."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T | None]: ...
