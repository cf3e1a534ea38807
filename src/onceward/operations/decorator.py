"""The part of decorated functions that sync and async share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.errors import ConfigurationError
from onceward.keys.key import Key
from onceward.protocol.policy import CommonSettings, Policy

from .operation import KeySource, Operation, TenantSource

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")
MethodParams = ParamSpec("MethodParams")  # the parameters of a method after `self`

TASK_METHODS = ("delay", "send_with_options", "kiq")
"""Methods by which task queues' task objects are recognised: Celery and RQ, Dramatiq, Taskiq."""


class DecoratorSettings(CommonSettings, total=False):
    """The keyword arguments of `@once(…)`, except `on_running` and `on_done`."""

    key: KeySource
    name: str | None
    version: str | int | None
    tenant: TenantSource


class _Signature:
    """`__signature__` of instances (not of the class): the function's own, without `self` if it is bound."""

    def __get__(self, function: Any, owner: type) -> inspect.Signature:
        if function is None:
            raise AttributeError("__signature__")
        signature = inspect.signature(function.__wrapped__)
        parameters = list(signature.parameters.values())[len(function._receiver) :]  # noqa: SLF001 (part of that class)
        return signature.replace(parameters=parameters)


class BaseFunction(Generic[P, T]):
    """A function whose work is done once per key. It keeps the function's name, docstring and signature.

    `receiver` is empty for a function, and holds the instance or class of a method.
    """

    # Slots for what every call needs: in the instance dict, next to the function's attributes, access would be slower.
    __slots__ = ("__dict__", "__weakref__", "_client", "_receiver", "engine", "job", "operation")
    __signature__ = _Signature()
    __wrapped__: Callable[..., Any]
    """The undecorated function. If it is a method, it is not bound."""

    def __init__(self, client: Any, operation: Operation, receiver: tuple[Any, ...] = ()) -> None:
        functools.update_wrapper(cast("Any", self), operation.fn)
        self._client = client
        self.engine: Engine = client.engine
        self._receiver = receiver
        self.operation = operation
        self.job: Callable[[tuple[Any, ...], dict[str, Any]], Job] = operation.job
        if receiver:
            self.job = functools.partial(_method_job, operation, receiver)  # not a bound method: no reference cycle

    @property
    def client(self) -> Any:
        """The `Once` or `AsyncOnce` that decorated it."""
        return self._client

    @property
    def policy(self) -> Policy:
        """The policy of this function: the client's defaults and its own options."""
        return self.operation.policy

    def key(self, *args: P.args, **kwargs: P.kwargs) -> Key:
        """Return the key of a call with these arguments. The function is not run."""
        return self.operation.key((*self._receiver, *args), kwargs)

    def _bind(self, instance: Any) -> Self:
        """Return the same function bound to this instance."""
        return self if instance is None else type(self)(self._client, self.operation, (instance,))

    def __reduce__(self) -> Any:
        """Pickle by name, like plain functions."""
        if self._receiver:
            return getattr, (self._receiver[0], self.operation.fn.__name__)
        return self.operation.fn.__qualname__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.operation.name}>"


def _method_job(operation: Operation, receiver: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
    return operation.job((*receiver, *args), kwargs)


def refuse_task(fn: Any) -> None:
    """Raise if `fn` is already a queue's task: the worker would run that task directly, and so bypass `@once`."""
    if any(callable(getattr(fn, name, None)) for name in TASK_METHODS):
        raise ConfigurationError(
            f"{getattr(fn, '__name__', fn)} is already a task: its worker would run it without @once",
            hint="put the task's decorator above @once, not below it",
        )
