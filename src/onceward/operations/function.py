"""Decorated sync functions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, overload

from onceward.engine import records
from onceward.engine.engine import Engine
from onceward.engine.entry import Entry
from onceward.engine.job import Job
from onceward.engine.runner import execute
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Finding, applied
from onceward.runtime.bridge import run

from .decorator import BaseFunction, MethodParams, P, T, value_or_raise

if TYPE_CHECKING:
    from .async_function import AsyncFunction


def execute_sync(engine: Engine, job: Job) -> Outcome[Any]:
    """Do the job once and return its outcome: `execute` for sync clients."""
    return run(execute(engine, job))


def call_sync(engine: Engine, job: Job) -> Any:
    """Do the job once. Return its value, or raise an error that says why there is none."""
    return value_or_raise(run(execute(engine, job)), job.policy)


class Function(BaseFunction[P, T]):
    """A sync function whose work is done once per key."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
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
        """Forget the record, so that the next call with these arguments runs. Return whether there was one."""
        return run(records.forget(self.engine, self.key(*args, **kwargs), force=False))

    def resolve(self, finding: applied | Finding, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Resolve the PARKED attempt with these arguments: `applied(value)`, `not_applied` or `abandon`."""
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
