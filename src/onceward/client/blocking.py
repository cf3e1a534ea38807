"""Make the sync methods of `Once` from the async ones of `AsyncOnce`, so that each is written once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from onceward.runtime.threads import run

P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return the sync form of a method: it blocks until the call has ended, and returns its result."""

    @functools.wraps(method)
    def call(client: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(client, *args, **kwargs))

    return call
