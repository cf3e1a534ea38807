"""Consumers whose messages, brokers or processes fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, RecordState, StoreUnavailable
from onceward.queues import Consumer, Delivery, MemoryQueue, Message
from onceward.stores import MemoryStore
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.queues.base import HandlerLog, UnreliableStore, parked_records, recording_handler, wait_until
from tests.faulty import FaultyNetwork, FaultyStore
from tests.queues.consuming import consumed


class Nameless(MemoryQueue):
    """A broker whose senders give no ids."""

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        return [Delivery(Message(one.message.body), one.handle) for one in await super().receive(max_messages, wait)]


@pytest.mark.fault("F72")
async def test_work_that_kills_its_process_again_and_again_is_dead_lettered() -> None:
    """Attempts are counted when claimed: the last consumer finds the record parked."""
    once, queue = AsyncOnce(MemoryStore(), lease="50ms"), MemoryQueue(dead_letters=True)

    @once(key="{event[id]}", name="book", max_attempts=2)
    async def book(event: dict[str, Any]) -> None: ...

    for _ in range(2):
        claimed = once.claim(book.key({"id": "a"}), max_attempts=2)
        held = await claimed.__aenter__()
        held._attempt.abandon()
        held._attempt.__exit__()
        await asyncio.sleep(0.06)
    queue.put(b'{"id": "a"}')
    await consumed(queue, book)
    assert [message.body for message, _ in queue.dead] == [b'{"id": "a"}']


async def test_a_dead_letter_queue_that_is_away_is_asked_again() -> None:
    once, queue = AsyncOnce(MemoryStore()), AwayAtFirst(dead_letters=True)
    queue.put(b"no JSON")
    await consumed(queue, recording_handler(once, HandlerLog()))
    assert [message.body for message, _ in queue.dead] == [b"no JSON"]
    assert once.counts["queue_failed"] == 1


class AwayAtFirst(MemoryQueue):
    refusals = 1

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("away")
        await super().dead_letter(delivery, reason)


async def test_a_message_that_cannot_be_parked_is_not_acknowledged() -> None:
    store, queue = UnreliableStore(), MemoryQueue()
    once = AsyncOnce(store)
    store.down = True
    queue.put(b"no JSON")
    task = asyncio.create_task(
        (consumer := Consumer(recording_handler(once, HandlerLog()), queue, first_delay="10ms")).consume()
    )
    await wait_until(lambda: once.counts.get("queue_failed", 0) > 0)
    assert len(queue) == 1
    store.down = False
    await wait_until(lambda: len(queue) == 0)
    consumer.stop()
    await task
    assert [error for _, error in await parked_records(once.store)] == ["DecodeError"]


async def test_a_broker_that_is_away_is_asked_again() -> None:
    once, seen, queue = AsyncOnce(MemoryStore()), HandlerLog(), Interrupted()
    queue.put(b'{"id": "a"}')
    await consumed(queue, recording_handler(once, seen))
    assert seen.effects == ["a"]
    assert once.counts["queue_failed"] == 3


class Interrupted(MemoryQueue):
    troubles = 3

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        if self.troubles:
            self.troubles -= 1
            raise ConnectionError("away")
        return await super().receive(max_messages, wait)


@pytest.mark.fault("F70")
async def test_a_delivery_whose_claim_is_lost_is_not_kept() -> None:
    """Otherwise the broker would not redeliver it to another consumer."""
    once, queue = AsyncOnce(MemoryStore(), lease="1s"), Watched(ack_deadline=1.0)
    begun, go_on = asyncio.Event(), asyncio.Event()
    queue.put(b'{"id": "a"}')

    @once(key="{event[id]}", name="book")
    async def book(event: dict[str, Any]) -> None:
        begun.set()
        await go_on.wait()

    consumer = Consumer(book, queue)
    task = asyncio.create_task(consumer.consume())
    await begun.wait()
    await wait_until(lambda: bool(queue.extended))
    await once.forget(book.key({"id": "a"}), force=True)
    await wait_until(lambda: once.counts.get("lost", 0) > 0)
    queue.extended.clear()
    await wait_until(lambda: len(queue.delivered) > 1)  # the broker delivers it to the next consumer
    assert queue.delivered[0] not in queue.extended
    go_on.set()
    consumer.stop()
    await task


class Watched(MemoryQueue):
    def __init__(self, **choices: Any) -> None:
        super().__init__(**choices)
        self.delivered: list[Delivery] = []
        self.extended: list[Delivery] = []

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        received = await super().receive(max_messages, wait)
        self.delivered += received
        return received

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        self.extended += deliveries
        await super().extend(deliveries)


@pytest.mark.parametrize("calls", [1, 2], ids=["in the common recording", "while each is recorded separately"])
async def test_results_of_a_cancelled_consumer_are_recorded_although_a_request_was_lost(
    tmp_path: Path, calls: int
) -> None:
    """The common recording is lost. The consumer is cancelled during that call, or during the next one."""
    settling = asyncio.Event()

    class LosesTheFirst(FaultyStore):
        """Loses the first settlement, and takes a while for each."""

        calls = 0

        async def settle(self, settlements: Any, **how: Any) -> Any:
            self.calls += 1
            if self.calls == calls:
                settling.set()
            first = self.calls == 1
            await asyncio.sleep(0.05)
            if first:
                raise StoreUnavailable("lost, as the test wants it")
            return await self.inner.settle(settlements, **how)

    store = LosesTheFirst(SQLiteStore(tmp_path / "once.db"), FaultyNetwork())
    async with AsyncOnce(store) as once:
        queue = MemoryQueue()

        @once(key="{event[id]}", name="book")
        async def book(event: dict[str, Any]) -> None: ...

        for number in range(3):
            queue.put(b'{"id": "%d"}' % number)
        consuming = asyncio.create_task(Consumer(book, queue).consume())
        await settling.wait()
        consuming.cancel()
        await asyncio.wait([consuming])
        entries = [await book.read({"id": str(number)}) for number in range(3)]
    assert [entry.state if entry else None for entry in entries] == [RecordState.COMPLETED] * 3
