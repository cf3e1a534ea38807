"""Decorated sync functions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, overload

from onceward.engine import records
from onceward.engine.engine import Engine
from onceward.engine.entry import Entry
from onceward.engine.job import Job
from onceward.engine.runner import execute, value_or_raise
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Finding, applied
from onceward.runtime.threads import run

from .decorator import BaseFunction, MethodParams, P, T

if TYPE_CHECKING:
    from .async_function import AsyncFunction


def execute_sync(engine: Engine, job: Job) -> Outcome[Any]:
    """Do the job once and return its outcome: `execute` for sync clients."""
    return run(execute(engine, job))


def call_sync(engine: Engine, job: Job) -> Any:
    """Do the job once. Return its value, or raise an error that says why there is none."""
    return value_or_raise(run(execute(engine, job)), job.policy)


class Function(BaseFunction[P, T]):
    """A function whose work is done once per key: what `@once` returns.

    `args` and `kwargs` of its methods are arguments of the function: they determine the key. If the key cannot be built
    from them, methods raise `InvalidKey` or `MissingKey`.
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function once per key. Return its value, or the stored one of an earlier call.

        With `on_running="skip"` or `on_done="skip"`, such a call returns None.

        Raises:
            NotAcquired: The key is running, parked, failed or has another payload. The function was not called.
            OutcomeUnknown: The function was called, but the store did not confirm its result.
            StoreUnavailable: The store does not answer. The function was not called.
            Exception: Whatever the function itself raises.
        """
        job = self.job(args, kwargs)
        value: T = value_or_raise(run(execute(self.engine, job)), job.policy)
        return value

    def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Call the function and return the `Outcome`: what happened, under which key, in which attempt."""
        return execute_sync(self.engine, self.job(args, kwargs))

    def read(self, *args: P.args, **kwargs: P.kwargs) -> Entry | None:
        """Return the record of a call with these arguments, or None. The function is not run."""
        return run(records.read(self.engine, self.key(*args, **kwargs), self.operation.codec))

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget the record, so that the next call with these arguments runs. Return whether there was one.

        Raise `AlreadyRunning` if a worker still holds its lease. `once.forget(fn.key(…), force=True)` forgets it even
        so.
        """
        return run(records.forget(self.engine, self.key(*args, **kwargs), force=False))

    def resolve(self, finding: applied | Finding, /, *args: P.args, **kwargs: P.kwargs) -> None:
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
        run(records.resolve(self.engine, self.key(*args, **kwargs), finding, operation.codec, operation.policy))

    @overload
    def __get__(self, instance: None, owner: type) -> Function[P, T]: ...
    @overload
    def __get__(
        self: Function[Concatenate[Any, MethodParams], T], instance: object, owner: type
    ) -> Function[MethodParams, T]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self._bind(instance)


class Decorator(Protocol):
    """The type of `@once(…)`: it keeps the function's types."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T]: ...  # type: ignore[overload-overlap]  # the first match is the one meant
    @overload
    def __call__(self, fn: Callable[P, T]) -> Function[P, T]: ...


class SkippingDecorator(Protocol):
    """The type of `@once(…)` with `skip`: the call may return None."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T | None]: ...  # type: ignore[overload-overlap]  # the first match is the one meant
    @overload
    def __call__(self, fn: Callable[P, T]) -> Function[P, T | None]: ...
