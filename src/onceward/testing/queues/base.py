"""The base of the queue tests: what an adapter's tests implement, a store that can be down, and `wait_until`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import update_wrapper
from typing import Any, TypeVar

from onceward.client.aio import AsyncOnce
from onceward.errors import StoreUnavailable
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest
from onceward.queues import Consumer, Delivery, Queue
from onceward.stores.memory.store import MemoryStore

TIMEOUT = 60.0
"""Seconds until a condition that must become true counts as failed. Long, because the machine may be busy."""

FIRST_DELAY, LONGEST_DELAY = "50ms", "500ms"
"""Delays short enough for tests."""


T = TypeVar("T")


def on_event_loop(test: Callable[[T], Coroutine[Any, Any, None]]) -> Callable[[T], None]:
    """Turn an async test method into one that runs on a new event loop."""

    def run_test(self: T) -> None:
        asyncio.run(test(self))

    update_wrapper(run_test, test)
    del run_test.__wrapped__  # type: ignore[attr-defined]  # pytest would take it for an async test
    return run_test


class UnreliableStore(MemoryStore):
    """A store that can be down."""

    down = False
    claims = 0

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        self.claims += 1
        self._check()
        return await super().claim(requests, timeout=timeout)

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        self._check()
        return await super().settle(settlements, **how)

    def _check(self) -> None:
        if self.down:
            raise StoreUnavailable("down")


class HandlerLog:
    """What a handler did, by event id."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.deliveries: list[tuple[str, int]] = []

    def __len__(self) -> int:
        return len(self.effects)


class QueueTestBase:
    """Gives each test an empty queue of the broker, and consumers on it."""

    ack_deadline = 3.0
    """Seconds. Long enough that a busy machine extends in time."""

    may_redeliver = False
    """Whether the broker may deliver a message again although its deadline was extended, as Kafka may if a group
    rebalances. The second delivery must still have no effect."""

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        """Return a new, unopened adapter for the queue of this test. A second call returns a second one for it.

        With `dead_letters`, the queue has a dead letter queue. `ack_deadline` is in seconds.
        """
        raise NotImplementedError

    async def put(self, body: bytes, id: str) -> None:
        """Send a message with this `body`, and with the transport `id` if the broker lets senders set one."""
        raise NotImplementedError

    async def remaining(self) -> int:
        """Return how many messages are not settled: waiting, delayed or in flight."""
        raise NotImplementedError

    async def dead_letters(self) -> list[bytes]:
        """Return the bodies of the dead letters."""
        raise NotImplementedError

    async def send(self, *ids: str) -> None:
        """Send one message for each of the event `ids`, each with its own transport id."""
        for id in ids:
            self._sent = getattr(self, "_sent", 0) + 1
            await self.put(json.dumps({"id": id}).encode(), f"m{self._sent}")

    def consuming(self, handler: Any, *, dead_letters: bool = False) -> AbstractAsyncContextManager[Consumer]:
        """Return a block in which a consumer with this `handler` runs on a new adapter.

        `dead_letters`: the queue has a place for dead letters.
        """
        queue = self.queue(dead_letters=dead_letters, ack_deadline=self.ack_deadline)
        return self.running(Consumer(handler, queue, first_delay=FIRST_DELAY, longest_delay=LONGEST_DELAY))

    @asynccontextmanager
    async def running(self, consumer: Consumer) -> AsyncIterator[Consumer]:
        """Return a block in which this `consumer` runs. It is stopped at the end."""
        consumer.poll_timeout = 0.1
        task = asyncio.create_task(consumer.consume())
        try:
            yield consumer
        finally:
            consumer.stop()
            await task

    async def until_empty(self) -> None:
        """Wait until all messages are settled."""
        await self.until_remaining(0)

    async def until_remaining(self, wanted: int) -> None:
        """Wait until `wanted` messages remain, twice in a row: a broker may miscount a message that is being moved."""

        async def holds() -> bool:
            return await self.remaining() == wanted and await self.remaining() == wanted

        await wait_until(holds)


class AckLosingQueue:
    """A queue that loses acknowledgements."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.lost = 0

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self.lost += len(deliveries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def recording_handler(once: AsyncOnce, log: HandlerLog) -> Any:
    """Return a handler that logs the event ids it processes."""

    @once.using()(key="{event[id]}", name="book")
    async def book(event: dict[str, Any]) -> None:
        log.effects.append(event["id"])

    return book


def failing_handler(once: AsyncOnce) -> Any:
    @once(key="{event[id]}", max_attempts=2, name="book")
    async def book(event: dict[str, Any]) -> None:
        raise ValueError(f"{event['id']} cannot be booked")

    return book


async def parked_records(store: Store) -> list[tuple[str, str]]:
    """Return the key and the error type of all parked records."""
    page = await store.scan(Filter(states=(RecordState.PARKED,)), cursor=None, limit=100, timeout=TIMEOUT)
    return [(record.key, record.error_type) for record in page.records]


async def wait_until(condition: Callable[[], bool] | Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        holds: bool | Awaitable[bool] = condition()
        is_local = isinstance(holds, bool)
        if holds if isinstance(holds, bool) else await holds:
            return
        assert time.monotonic() < deadline, "the condition did not become true"
        await asyncio.sleep(0.01 if is_local else 0.15)  # query a broker less often
