"""The stage of the stories: what an adapter says about itself, a store that can be down, and how to wait."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from onceward.client.aio import AsyncOnce
from onceward.errors import StoreUnavailable
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, ClaimRequest
from onceward.queues import Consumer, Delivery, Queue
from onceward.stores.memory.store import MemoryStore

PATIENCE = 60.0
"""Seconds until something that must happen is said not to happen: long, because the machine may be busy."""

FIRST, LONGEST = "50ms", "500ms"
"""Delays short enough for tests."""


class Shaky(MemoryStore):
    """A store that can be down."""

    down = False
    claims = 0

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        self.claims += 1
        if self.down:
            raise StoreUnavailable("down")
        return await super().claim(requests, timeout=timeout)

    def answer(self, request: Any) -> Answer:
        if self.down:
            raise StoreUnavailable("down")
        return super().answer(request)


class Seen:
    """What a handler did, by the event's own id."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.deliveries: list[tuple[str, int]] = []

    def __len__(self) -> int:
        return len(self.effects)


class Stage:
    """A broker's queue for each test, empty at first, and consumers on it."""

    ack_deadline = 3.0
    """Seconds; long enough that a busy machine extends in time."""

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        """A new adapter, not open yet, on the queue of this test. Called twice, it gives two consumers of one queue."""
        raise NotImplementedError

    async def put(self, body: bytes, id: str) -> None:
        """Send a message with this transport id, if the broker lets senders give one."""
        raise NotImplementedError

    async def left(self) -> int:
        """How many messages the broker still has to deliver: waiting, delayed, or in somebody's hand."""
        raise NotImplementedError

    async def dead(self) -> list[bytes]:
        """The bodies of the dead letters."""
        raise NotImplementedError

    async def send(self, *ids: str) -> None:
        """One message for each, with a transport id of its own."""
        for id in ids:
            self._sent = getattr(self, "_sent", 0) + 1
            await self.put(json.dumps({"id": id}).encode(), f"m{self._sent}")

    def consuming(self, handler: Any, *, dead_letters: bool = False) -> AbstractAsyncContextManager[Consumer]:
        queue = self.queue(dead_letters=dead_letters, ack_deadline=self.ack_deadline)
        return self.running(Consumer(handler, queue, first_delay=FIRST, longest_delay=LONGEST))

    @asynccontextmanager
    async def running(self, consumer: Consumer) -> AsyncIterator[Consumer]:
        consumer.lookup = 0.1
        task = asyncio.create_task(consumer.consume())
        try:
            yield consumer
        finally:
            consumer.stop()
            await task

    async def until_empty(self) -> None:
        await self.until_left(0)

    async def until_left(self, wanted: int) -> None:
        """A broker may count what is on its way from one place to another twice, or not at all: twice the same."""

        async def holds() -> bool:
            return await self.left() == wanted and await self.left() == wanted

        await until(holds)


class Forgetful:
    """A queue whose acknowledgements are lost on the way."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.lost = 0

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self.lost += len(deliveries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def noting(once: AsyncOnce, seen: Seen) -> Any:
    """A handler that notes what it does, under the event's own id."""

    @once.using()(key="{event[id]}", name="book")
    async def book(event: dict[str, Any]) -> None:
        seen.effects.append(event["id"])

    return book


def poisoned(once: AsyncOnce) -> Any:
    @once(key="{event[id]}", max_attempts=2, name="book")
    async def book(event: dict[str, Any]) -> None:
        raise ValueError(f"{event['id']} cannot be booked")

    return book


async def parked(store: Store) -> list[tuple[str, str]]:
    """Key and error of everything that waits for a person."""
    page = await store.scan(Filter(states=(RecordState.PARKED,)), cursor=None, limit=100, timeout=PATIENCE)
    return [(record.key, record.error_type) for record in page.records]


async def until(condition: Callable[[], bool] | Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        holds: bool | Awaitable[bool] = condition()
        at_hand = isinstance(holds, bool)
        if holds if isinstance(holds, bool) else await holds:
            return
        assert time.monotonic() < deadline, "it does not happen"
        await asyncio.sleep(0.01 if at_hand else 0.15)  # a broker is asked less often
