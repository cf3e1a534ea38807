"""Decorated functions in the blocking colour."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, overload

from .bridge import run
from .core import inspect as records
from .core import switch
from .core.acquire import acquire_at_once, otherwise
from .core.ending import after_error, after_value, executed, record_at_once
from .core.engine import Engine
from .core.execute import awaited, done_before, performed, torn, unprotected, unseen
from .core.glance import replayed
from .core.held import Held
from .core.job import NO_KEY, Job
from .decorator import Guarded, P, Rest, T, value_before, value_now
from .model.outcome import Outcome
from .model.policy import Finding, Policy, applied
from .model.view import Entry

if TYPE_CHECKING:
    from .async_function import AsyncFunction


def do(engine: Engine, job: Job) -> Outcome[Any]:
    """`execute`, driven by the bridge from where it might wait."""
    seen = done_before(engine, job)
    if seen is not None:
        return replayed(job, *seen)
    found = undone(engine, job)
    return executed(found) if isinstance(found, Held) else found


def answer(engine: Engine, job: Job, policy: Policy) -> Any:
    """What the plain call returns or raises."""
    seen = done_before(engine, job)
    return value_now(undone(engine, job), policy) if seen is None else value_before(job, seen, policy)


def undone(engine: Engine, job: Job) -> Held | Outcome[Any]:
    """`unseen`, driven by the bridge.

    Where the store answers at once, that begins only where something has to wait: a coroutine there and back is a
    tenth of what a call in memory costs.
    """
    answer_to = engine.answer
    if answer_to is None or switch.off or job.key is NO_KEY or not engine.opened:
        return run(unseen(engine, job))
    held = Held(engine, job)
    try:
        refused = acquire_at_once(held, answer_to)
        if refused is not None:
            found = run(otherwise(held, refused))
            return run(performed(held)) if found is held else found
        return straight(held)
    except BaseException as error:
        reason = run(torn(held, error))
        if reason is None:
            raise
    return run(unprotected(engine, job, reason))


def straight(held: Held) -> Held | Outcome[Any]:
    """`performed` for work that is called and recorded, as most is."""
    job = held.job
    if held.record.ask_first or job.policy.on_lost == "cancel":  # there is more to do
        return run(performed(held))
    held.__enter__()
    try:
        held.begun = True
        try:
            value = job.call(*job.args, **job.kwargs)
            if type(value) is CoroutineType:
                value = run(awaited(job, value))
        except BaseException as error:  # noqa: BLE001 (whatever was raised, the claim must end)
            return run(after_error(held, error))
        done = record_at_once(held, value)
        return run(after_value(held, value)) if done is None else done
    finally:
        held.__exit__()


class Function(Guarded[P, T]):
    """A plain function that is done once per key."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        value: T = answer(self.engine, self.job(args, kwargs), self.operation.policy)
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
