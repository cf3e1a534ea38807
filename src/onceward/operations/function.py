"""Decorated functions in the blocking colour."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, overload

from onceward.engine import records
from onceward.engine.attempt import Attempt
from onceward.engine.engine import Engine
from onceward.engine.entry import Entry
from onceward.engine.execute import as_outcome, at_once, onward, torn
from onceward.engine.job import Job
from onceward.engine.lookup import done_before, replayed
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Finding, applied
from onceward.runtime.bridge import run

from .decorator import Guarded, P, Rest, T, answer_of, value_before

if TYPE_CHECKING:
    from .async_function import AsyncFunction


def do(engine: Engine, job: Job) -> Outcome[Any]:
    """`execute`, driven by the bridge from where it might wait."""
    seen = done_before(engine, job)
    if seen is not None:
        return replayed(job, *seen)
    return as_outcome(done_now(engine, job))


def answer(engine: Engine, job: Job) -> Any:
    """What the plain call returns or raises."""
    seen = done_before(engine, job)
    if seen is not None:
        return value_before(job, *seen)
    found = done_now(engine, job)
    if isinstance(found, Attempt):
        return found.result
    try:
        return answer_of(found, job.policy)
    finally:
        del found  # what it raises has a traceback that leads here: from here none may lead back


def done_now(engine: Engine, job: Job) -> Attempt | Outcome[Any]:
    """`unseen`, driven in the same way."""
    attempt = Attempt(engine, job)
    try:
        done = at_once(attempt)
        return run(onward(attempt)) if done is None else done
    except BaseException as error:
        unclaimed = run(torn(attempt, error))
        if unclaimed is None:
            raise
        return unclaimed


class Function(Guarded[P, T]):
    """A plain function that is done once per key."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        job = self.job  # named, it is called more quickly than as a method, which it is not
        value: T = answer(self.engine, job(args, kwargs))
        return value

    def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Call it and get the `Outcome` instead of the value: what happened, under which key, in which attempt."""
        return do(self.engine, self.job(args, kwargs))

    def read(self, *args: P.args, **kwargs: P.kwargs) -> Entry | None:
        """The record of a call with these arguments, or None. Nothing is run."""
        return run(records.read(self.engine, self.key(*args, **kwargs), self.operation.codec))

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Make the next call with these arguments run again."""
        return run(records.forget(self.engine, self.key(*args, **kwargs), force=False))

    def resolve(self, finding: applied | Finding, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Say how the PARKED attempt with these arguments ended: `applied(value)`, `not_applied` or `abandon`."""
        operation = self.operation
        run(records.resolve(self.engine, self.key(*args, **kwargs), finding, operation.codec, operation.policy))

    @overload
    def __get__(self, instance: None, owner: type) -> Function[P, T]: ...
    @overload
    def __get__(self: Function[Concatenate[Any, Rest], T], instance: object, owner: type) -> Function[Rest, T]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self._bound(instance)


class Decorator(Protocol):
    """`@once(…)`: keeps the function's types."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T]: ...  # type: ignore[overload-overlap]  # the first match is the one meant
    @overload
    def __call__(self, fn: Callable[P, T]) -> Function[P, T]: ...


class SkippingDecorator(Protocol):
    """`@once(…)` with `skip`: the call may return None."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncFunction[P, T | None]: ...  # type: ignore[overload-overlap]  # the first match is the one meant
    @overload
    def __call__(self, fn: Callable[P, T]) -> Function[P, T | None]: ...
