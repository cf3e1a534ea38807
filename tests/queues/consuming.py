"""Consume a queue in memory until it is empty."""

from __future__ import annotations

import asyncio
from typing import Any

from onceward.queues import Consumer, MemoryQueue
from onceward.testing.queues.base import wait_until


async def consumed(queue: MemoryQueue, handler: Any, **choices: Any) -> None:
    """Consume everything that is in the queue."""
    consumer = Consumer(handler, queue, first_delay="10ms", longest_delay="100ms", **choices)
    consumer.poll_timeout = 0.05
    task = asyncio.create_task(consumer.consume())
    await wait_until(lambda: len(queue) == 0 or task.done())
    consumer.stop()
    await task
