"""The off switch: decorated functions run as if they were not decorated."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar, cast

from onceward.engine import switch
from onceward.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])

_lock = threading.Lock()


class disabled(ContextDecorator):  # noqa: N801 (reads as a word in `with disabled():`)
    """Claim, store and replay nothing in this process, for tests of the work itself.

    Use it as a context manager (`with disabled():`, also `async with`), or as a decorator of plain and async functions.
    Blocks may overlap in any order and from any thread; Onceward is enabled again when the last one has ended. Inside,
    `with once.claim(…)` and `current_claim()` return a claim that exists in no store.
    """

    def __enter__(self) -> None:
        _change_count(1)

    def __exit__(self, *_: object) -> None:
        _change_count(-1)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def __call__(self, fn: F) -> F:
        """Decorate `fn`, and return it: Onceward is disabled while it runs.

        Raises:
            ConfigurationError: `fn` is a generator, whose body would run after the decorator has ended.
        """
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise ConfigurationError(
                f"{fn!r} is a generator, so its body runs after the decorator has ended",
                hint="use `with disabled():` inside it",
            )
        if not inspect.iscoroutinefunction(fn):
            return super().__call__(fn)

        @functools.wraps(fn)
        async def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await fn(*args, **kwargs)

        return cast("F", call)


def _change_count(step: int) -> None:
    with _lock:
        switch.off += step
