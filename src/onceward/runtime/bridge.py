"""Run a coroutine without an event loop. The sync client runs the async flows this way, on a runtime that blocks."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from onceward.errors import WrongRuntime

T = TypeVar("T")


def run(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of Onceward without an event loop, and return its result.

    Args:
        call: A coroutine that never suspends: one of a sync client's flows, such as `admin.overview()`.

    Raises:
        WrongRuntime: The coroutine waits for an event loop. Its store works only with `AsyncOnce`.
    """
    try:
        call.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # not in a variable: a failure's traceback would make a cycle
    call.close()
    raise WrongRuntime(
        "a sync call tried to wait on an event loop", hint="this store works only with AsyncOnce, not with Once"
    )
