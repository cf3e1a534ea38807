"""Tasks that call a batcher in a known order, also while another call is in flight."""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from onceward.protocol.requests import Answer, AnyRequest
from onceward.runtime.async_batcher import AsyncBatcher
from tests.moved_time import TOO_LONG
from tests.unit.batcher_calls import LoopSend, answer_to, request

PATIENCE = 30.0


async def ask(batcher: AsyncBatcher, one: AnyRequest, timeout: float = PATIENCE) -> Answer:
    [answer] = await batcher.ask(one, timeout)
    return answer


async def start(batcher: AsyncBatcher, *requests: AnyRequest, timeout: float = PATIENCE) -> list[Task[Answer]]:
    """Start one task per request, queued in this order."""
    tasks = [asyncio.ensure_future(ask(batcher, one, timeout)) for one in requests]
    await asyncio.sleep(0)
    return tasks


async def all_of(tasks: list[Task[Answer]]) -> list[Answer]:
    return await asyncio.wait_for(asyncio.gather(*tasks), TOO_LONG)


@asynccontextmanager
async def under_way(holds: int = 1) -> AsyncIterator[tuple[AsyncBatcher, LoopSend]]:
    """Yield a batcher whose first call is inside the store."""
    send = LoopSend(holds)
    batcher = AsyncBatcher(send)
    [first] = await start(batcher, request("first"))
    await send.reached()
    yield batcher, send
    for number in range(holds):
        send.go(number)
    assert await asyncio.wait_for(first, TOO_LONG) == answer_to(request("first"))
