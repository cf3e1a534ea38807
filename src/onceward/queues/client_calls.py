"""Await calls of client libraries. Some of these cancel their callers when the connection is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def client_call(call: Awaitable[T]) -> T:
    """Await a call of the client library and distinguish its own cancellations from those of this task.

    A cancellation that did not come from this task's owner raises `ConnectionError`. A real one is raised, even if the
    library swallowed it.
    """
    try:
        result = await call
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise ConnectionError("the client library cancelled its own call") from None
    if is_cancelled():
        raise asyncio.CancelledError
    return result


def is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
