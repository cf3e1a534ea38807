"""Run an async-shaped call without an event loop. The blocking face is the async core, driven by this."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from onceward.errors import WrongRuntime

T = TypeVar("T")


def run(call: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never suspends: one send, and its result is there."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # not named: it may have failed, and its traceback lead here
    call.close()
    raise WrongRuntime("a blocking call tried to wait on an event loop", hint="this store was made for AsyncOnce")
