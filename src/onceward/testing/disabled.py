"""The off switch: work runs as if it were not decorated at all."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from onceward.engine import switch
from onceward.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])

_lock = threading.Lock()


class disabled:  # noqa: N801 (reads as a word in `with disabled():`)
    """While it is on, nothing is claimed, stored or replayed, in the whole process: for tests of the work itself.

    A context manager (`with disabled():`, also `async with`), and a decorator of plain and async functions. Blocks may
    overlap in any order and from any thread; the switch is back when the last one has ended. `with once.claim(…)` and
    `current_claim()` give a claim that no store knows of.
    """

    def __enter__(self) -> None:
        _turn(1)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _turn(-1)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, at)

    def __call__(self, fn: F) -> F:
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise ConfigurationError(
                f"{fn!r} yields, so it goes on after the decorator has ended", hint="write `with disabled():` inside it"
            )
        return cast("F", _awaited(fn) if inspect.iscoroutinefunction(fn) else _called(fn))


def _called(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with disabled():
            return fn(*args, **kwargs)

    return call


def _awaited(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with disabled():
            return await fn(*args, **kwargs)

    return call


def _turn(step: int) -> None:
    with _lock:
        switch.off += step
