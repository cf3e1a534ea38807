"""Await calls of client libraries. Some libraries cancel their callers when the connection is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def client_call(call: Awaitable[T]) -> T:
    """Await a call of the client library, and distinguish the library's cancellations from those of this task.

    If the library cancels its own call, `ConnectionError` is raised. If this task is cancelled, `CancelledError` is
    raised, even if the library suppressed it.
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
