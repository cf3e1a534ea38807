"""Wrap a queue so that every failure of its client library is an ordinary exception, never a stray cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from .message import Delivery
from .port import Queue

T = TypeVar("T")


class CheckedQueue:
    """The queue methods that may fail. Some client libraries cancel their callers when the connection is lost."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        return await await_client_call(self._queue.receive(max_messages, wait))

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await await_client_call(self._queue.ack(deliveries))

    async def nack(self, delivery: Delivery, delay: float) -> None:
        await await_client_call(self._queue.nack(delivery, delay))

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        await await_client_call(self._queue.dead_letter(delivery, reason))

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        await await_client_call(self._queue.extend(deliveries))


async def await_client_call(call: Awaitable[T]) -> T:
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
