"""Decorated functions: what is the same in both colours."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.engine.lookup import replayed
from onceward.errors import ConfigurationError
from onceward.keys.key import Key
from onceward.protocol.outcome import Executed, Outcome, Replayed, Running
from onceward.protocol.policy import Policy
from onceward.protocol.record import Done

from .operation import Operation

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")
Rest = ParamSpec("Rest")  # the parameters of a method behind its receiver

SENDS = ("delay", "send_with_options", "kiq")
"""What tasks have that functions do not: of Celery and RQ, of Dramatiq, of Taskiq."""


class _Signature:
    """`__signature__` of instances alone: the function's own, less the receiver of a method."""

    def __get__(self, guarded: Any, owner: type) -> inspect.Signature:
        if guarded is None:
            raise AttributeError("__signature__")
        signature = inspect.signature(guarded.__wrapped__)
        behind = list(signature.parameters.values())[len(guarded._receiver) :]  # noqa: SLF001 (part of that class)
        return signature.replace(parameters=behind)


class Guarded(Generic[P, T]):
    """A function that is done once per key. Looks like the function: name, docstring, signature."""

    # Slots for what every call needs: beside all that the function brings with it, Python would find it less quickly.
    __slots__ = ("__dict__", "__weakref__", "_client", "_receiver", "engine", "job", "operation")
    __signature__ = _Signature()
    __wrapped__: Callable[..., Any]
    """The plain function, without a claim; of a method, without its receiver."""

    def __init__(self, client: Any, operation: Operation, receiver: tuple[Any, ...] = ()) -> None:
        functools.update_wrapper(cast("Any", self), operation.fn)
        self._client = client
        self.engine: Engine = client.engine
        self._receiver = receiver
        self.operation = operation
        self.job: Callable[[tuple[Any, ...], dict[str, Any]], Job] = operation.job
        if receiver:
            self.job = functools.partial(_job_of_method, operation, receiver)  # not our own method: nothing is circular

    @property
    def client(self) -> Any:
        """The `Once` or `AsyncOnce` that it was decorated with."""
        return self._client

    @property
    def policy(self) -> Policy:
        """The choices in force for this function."""
        return self.operation.policy

    def key(self, *args: P.args, **kwargs: P.kwargs) -> Key:
        """The key that a call with these arguments has. Nothing is run."""
        return self.operation.key((*self._receiver, *args), kwargs)

    def _bound(self, instance: Any) -> Self:
        """As a method: the same function with its receiver filled in."""
        return self if instance is None else type(self)(self._client, self.operation, (instance,))

    def __reduce__(self) -> Any:
        """By name, as plain functions are pickled."""
        if self._receiver:
            return getattr, (self._receiver[0], self.operation.fn.__name__)
        return self.operation.fn.__qualname__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.operation.name}>"


def _job_of_method(
    operation: Operation, receiver: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Job:
    return operation.job((*receiver, *args), kwargs)


def answer_of(outcome: Outcome[T], policy: Policy) -> T:
    """What the plain call returns or raises. With `skip` it returns None, and is typed so."""
    kind = type(outcome)
    if kind is Executed or (kind is Replayed and outcome.stored and policy.on_done == "replay"):  # type: ignore[union-attr]  # it is a Replayed
        return outcome.value  # type: ignore[return-value]  # T may itself be None
    if isinstance(outcome, Replayed) and policy.on_done != "replay":
        if policy.on_done == "raise":
            raise outcome.already_done()
        return None  # type: ignore[return-value]  # the overloads of @once say T | None
    if isinstance(outcome, Running) and policy.on_running == "skip":
        return None  # type: ignore[return-value]  # the overloads of @once say T | None
    try:
        value: T = outcome.unwrap()
    finally:
        del outcome  # what it raises has a traceback that leads here: from here none may lead back
    return value


def value_before(job: Job, done: Done, value: Any) -> Any:
    """The same for what was found done. An outcome is made only where there is more to say than the value."""
    return value if job.policy.on_done == "replay" else answer_of(replayed(job, done, value), job.policy)


def refuse_task(fn: Any) -> None:
    """A task is sent as it is, and its worker would never come by @once."""
    if any(callable(getattr(fn, name, None)) for name in SENDS):
        raise ConfigurationError(
            f"{getattr(fn, '__name__', fn)} is a task already: its worker would run it without @once",
            hint="put the task's decorator above @once, not below it",
        )
