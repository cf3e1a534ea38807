"""A queue as the consumer calls it: what goes wrong is an exception, also where a client library knows no better."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from .message import Delivery
from .port import Queue

T = TypeVar("T")


class Broker:
    """The calls of a port that may fail. Some libraries cancel whoever waits when their connection is lost."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        return await told(self._queue.receive(most, wait))

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await told(self._queue.ack(deliveries))

    async def later(self, delivery: Delivery, seconds: float) -> None:
        await told(self._queue.later(delivery, seconds))

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        await told(self._queue.dead_letter(delivery, reason))

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        await told(self._queue.extend(deliveries))


async def told(call: Awaitable[T]) -> T:
    """Its answer. A cancellation that is not ours is trouble; one that is ours is raised, also if it was swallowed."""
    try:
        answer = await call
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise ConnectionError("the client library has cancelled its own call") from None
    if is_cancelled():
        raise asyncio.CancelledError
    return answer


def is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
