"""`@once.operation(name)`: decorate a function with a declared operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from onceward.protocol.policy import CommonSettings, OnDone, OnRunning

from .base import BaseClient

D = TypeVar("D")  # the type of the decorator
S = TypeVar("S")  # the type of the decorator with `skip`: calls may return None


class OperationDecorator(BaseClient, Generic[D, S]):
    """What `Once` and `AsyncOnce` share of `operation`; only the types of the decorators differ."""

    @overload
    def operation(
        self,
        name: str,
        *,
        on_running: Literal["skip"],
        on_done: OnDone = "replay",
        **choices: Unpack[CommonSettings],
    ) -> S: ...
    @overload
    def operation(
        self,
        name: str,
        *,
        on_running: OnRunning = "wait",
        on_done: Literal["skip"],
        **choices: Unpack[CommonSettings],
    ) -> S: ...
    @overload
    def operation(
        self,
        name: str,
        *,
        on_running: Literal["wait", "raise"] = "wait",
        on_done: Literal["replay", "raise"] = "replay",
        **choices: Unpack[CommonSettings],
    ) -> D: ...
    def operation(self, name: str, **choices: Any) -> Any:
        """Return a decorator for an operation that a table or file declares: `@once.operation("email")`.

        Args:
            name: The name in the table that the client got as `operations`.
            choices: More settings for this function. Settings that the table declares cannot be repeated here.

        Raises:
            ConfigurationError: The table has no such operation, or it declares one of the `choices` itself.
        """
        self.operations[name].settings_with(choices)  # raise at the decorator, not at the first call
        return partial(self._decorate_as, name, choices)

    def _decorate_as(self, name: str, choices: Mapping[str, Any], fn: Callable[..., Any]) -> Any:
        raise NotImplementedError
