"""What a client has declared: functions, schedules, sagas and states. `override_settings(ONCEWARD=…)` reaches them all.

Each is built again with the new setting, and the object that the project already holds takes over the new attributes.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from .client import LazyClient

Method = TypeVar("Method", bound=Callable[..., Any])


class DeclaredObjects:
    """The declared objects of a client, and how each follows the setting. It does not keep them alive."""

    def __init__(self) -> None:
        self._numbers = count()
        self._follow: dict[int, tuple[weakref.ref[Any], Callable[[Any], None]]] = {}

    def add(self, declared: Any, follow: Callable[[Any], None]) -> None:
        """Call `follow(declared)` whenever the setting has changed."""
        number = next(self._numbers)
        reference = weakref.ref(declared, lambda _: self._follow.pop(number, None))
        self._follow[number] = (reference, follow)

    def follow(self) -> None:
        """Apply the setting, in the order in which the objects were declared."""
        for reference, follow in list(self._follow.values()):
            declared = reference()
            if declared is not None:
                follow(declared)


def followed(method: Method) -> Method:
    """Return a method of the client whose result follows the setting."""

    @functools.wraps(method)
    def call(client: LazyClient, *args: Any, **kwargs: Any) -> Any:
        return client._declared_object(lambda with_setting: method(with_setting, *args, **kwargs))  # noqa: SLF001 (its own method)

    return cast("Method", call)


def followed_decorator(method: Method) -> Method:
    """Return a method of the client that returns a decorator, whose results follow the setting."""

    @functools.wraps(method)
    def call(client: LazyClient, *args: Any, **kwargs: Any) -> Any:
        def decorate(fn: Callable[..., Any]) -> Any:
            return client._declared_object(lambda with_setting: method(with_setting, *args, **kwargs)(fn))  # noqa: SLF001 (its own method)

        return decorate

    return cast("Method", call)


def followed_operation(method: Method) -> Method:
    """Return the method of `@once.operation(name)`. The operation of the decorated function follows the setting."""

    @functools.wraps(method)
    def decorate(client: LazyClient, *args: Any) -> Any:
        decorated = method(client, *args)
        client._follow_operation(decorated.operation, lambda with_setting: method(with_setting, *args).operation)  # noqa: SLF001 (its own method)
        return decorated

    return cast("Method", decorate)
