"""Decorated functions in the async colour."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Protocol, overload

from onceward.engine import records
from onceward.engine.attempt import Attempt
from onceward.engine.entry import Entry
from onceward.engine.execute import at_once, execute, onward, torn
from onceward.engine.lookup import done_before
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Finding, applied

from .decorator import Guarded, P, Rest, T, answer_of, value_before
from .job_builder import job_of, key_of


class AsyncFunction(Guarded[P, T]):
    """A coroutine function that is done once per key."""

    _is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)  # how 3.11's asyncio.iscoroutinefunction knows

    def __init__(self, client: Any, operation: Any, receiver: tuple[Any, ...] = ()) -> None:
        super().__init__(client, operation, receiver)
        mark = getattr(inspect, "markcoroutinefunction", None)  # how 3.12's inspect knows
        if mark is not None:
            mark(self)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        engine = self.engine
        quick = self.operation.is_quick(args, kwargs)
        job = self.job(args, kwargs) if quick else await job_of(self, args, kwargs)
        seen = done_before(engine, job)
        if seen is not None:
            replayed: T = value_before(job, *seen)
            return replayed
        attempt = Attempt(engine, job)
        try:  # as `unseen`, without a coroutine more on every call's way
            done = None if engine.answer is None else at_once(attempt)
            found = await onward(attempt) if done is None else done
        except BaseException as error:
            unclaimed = await torn(attempt, error)
            if unclaimed is None:
                raise
            found = unclaimed
            del unclaimed
        try:
            value: T = found.result if isinstance(found, Attempt) else answer_of(found, job.policy)
            return value
        finally:
            del found  # what failed has a traceback that leads here: from here none may lead back to it

    async def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Call it and get the `Outcome` instead of the value: what happened, under which key, in which attempt."""
        return await execute(self.engine, await job_of(self, args, kwargs))

    async def read(self, *args: P.args, **kwargs: P.kwargs) -> Entry | None:
        """The record of a call with these arguments, or None. Nothing is run."""
        return await records.read(self.engine, await key_of(self, args, kwargs), self.operation.codec)

    async def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Make the next call with these arguments run again."""
        return await records.forget(self.engine, await key_of(self, args, kwargs), force=False)

    async def resolve(self, finding: applied | Finding, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Say how the PARKED attempt with these arguments ended: `applied(value)`, `not_applied` or `abandon`."""
        operation = self.operation
        await records.resolve(self.engine, await key_of(self, args, kwargs), finding, operation.codec, operation.policy)

    @overload
    def __get__(self, instance: None, owner: type) -> AsyncFunction[P, T]: ...
    @overload
    def __get__(
        self: AsyncFunction[Concatenate[Any, Rest], T], instance: object, owner: type
    ) -> AsyncFunction[Rest, T]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self._bound(instance)


class AsyncDecorator(Protocol):
    """`@once(…)`: keeps the function's types."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T]: ...


class SkippingAsyncDecorator(Protocol):
    """`@once(…)` with `skip`: the call may return None."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T | None]: ...
