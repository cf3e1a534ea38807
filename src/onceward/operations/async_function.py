"""Decorated async functions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Protocol, overload

from onceward.engine import records
from onceward.engine.attempt import Attempt
from onceward.engine.entry import Entry
from onceward.engine.execute import execute, recover_or_run_unprotected, run_attempt
from onceward.engine.lookup import lookup_completed
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Finding, applied

from .decorator import BaseFunction, MethodParams, P, T, replayed_value, value_or_raise
from .job_builder import job_of, key_of


class AsyncFunction(BaseFunction[P, T]):
    """An async function whose work is done once per key."""

    _is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)  # for asyncio.iscoroutinefunction of Python 3.11

    def __init__(self, client: Any, operation: Any, receiver: tuple[Any, ...] = ()) -> None:
        super().__init__(client, operation, receiver)
        mark_coroutine = getattr(inspect, "markcoroutinefunction", None)  # Python 3.12 or later
        if mark_coroutine is not None:
            mark_coroutine(self)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        engine = self.engine
        quick = self.operation.is_quick(args, kwargs)
        job = self.job(args, kwargs) if quick else await job_of(self, args, kwargs)
        seen = lookup_completed(engine, job)
        if seen is not None:
            replayed: T = replayed_value(job, *seen)
            return replayed
        attempt = Attempt(engine, job)
        try:  # a copy of `execute_uncompleted`: one coroutine less per call
            found = await run_attempt(attempt)
        except BaseException as error:
            unclaimed = await recover_or_run_unprotected(attempt, error)
            if unclaimed is None:
                raise
            found = unclaimed
            del unclaimed
        try:
            value: T = found.result if isinstance(found, Attempt) else value_or_raise(found, job.policy)
            return value
        finally:
            del found  # the raised exception's traceback refers to this frame: avoid a reference cycle

    async def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Call the function and return the `Outcome`: what happened, under which key, in which attempt."""
        return await execute(self.engine, await job_of(self, args, kwargs))

    async def read(self, *args: P.args, **kwargs: P.kwargs) -> Entry | None:
        """Return the record of a call with these arguments, or None. The function is not run."""
        return await records.read(self.engine, await key_of(self, args, kwargs), self.operation.codec)

    async def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget the record, so that the next call with these arguments runs. Return whether there was one."""
        return await records.forget(self.engine, await key_of(self, args, kwargs), force=False)

    async def resolve(self, finding: applied | Finding, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Resolve the PARKED attempt with these arguments: `applied(value)`, `not_applied` or `abandon`."""
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


class AsyncDecorator(Protocol):
    """The type of `@once(…)`: it keeps the function's types."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T]: ...


class SkippingAsyncDecorator(Protocol):
    """The type of `@once(…)` with `skip`: the call may return None."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T | None]: ...
