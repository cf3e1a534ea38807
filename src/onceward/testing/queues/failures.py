"""Tests of failures around a consumer: the store is down, work takes long, the consumer stops or is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from onceward.client.aio import AsyncOnce
from onceward.queues import Consumer, Message
from onceward.stores.memory.store import MemoryStore

from .base import HandlerLog, QueueTestBase, UnreliableStore, on_event_loop, recording_handler, wait_until


class FailureTests(QueueTestBase):
    """No message is lost, and no effect happens twice."""

    @on_event_loop
    async def test_without_a_store_nothing_is_done_and_nothing_acknowledged(self) -> None:
        store, log = UnreliableStore(), HandlerLog()
        once = AsyncOnce(store)
        store.down = True
        async with self.consuming(recording_handler(once, log)):
            await self.send("a")
            await wait_until(lambda: once.counts.get("delivered_later", 0) >= 1)
            assert log.effects == []
            await self.until_remaining(1)
            store.down = False
            await self.until_empty()
        assert log.effects == ["a"]

    @on_event_loop
    async def test_without_a_store_work_runs_if_on_store_down_is_run(self) -> None:
        """If the work fails, the message is not acknowledged. Here the third MERGE succeeds."""
        store, log = UnreliableStore(), HandlerLog()
        once = AsyncOnce(store)
        store.down = True
        tried: list[str] = []

        @once(key="{event[id]}", on_store_down="run")
        async def merge(event: dict[str, Any]) -> None:
            tried.append(event["id"])
            if len(tried) < 3:
                raise ConnectionError("the MERGE failed")
            log.effects.append(event["id"])

        async with self.consuming(merge):
            await self.send("a")
            await self.until_empty()
        assert log.effects == ["a"]
        assert tried == ["a"] * 3

    @on_event_loop
    async def test_work_that_outlasts_the_ack_deadline_is_neither_delivered_again_nor_doubled(self) -> None:
        once, log = AsyncOnce(MemoryStore(), lease="10s"), HandlerLog()

        @once(key="{event[id]}", name="book")
        async def book(event: dict[str, Any], message: Message) -> None:
            log.deliveries.append((event["id"], message.deliveries))
            await asyncio.sleep(1.5 * self.ack_deadline)
            log.effects.append(event["id"])

        async with self.consuming(book), self.consuming(book):
            await self.send("a")
            await self.until_empty()
        assert log.effects == ["a"]
        assert log.deliveries == [("a", 1)]
        assert self.may_redeliver or once.counts.get("delivered_later", 0) == 0

    @on_event_loop
    async def test_a_stopping_consumer_finishes_messages_in_flight_and_takes_no_more(self) -> None:
        once, log = AsyncOnce(MemoryStore()), HandlerLog()
        started, proceed = asyncio.Event(), asyncio.Event()

        @once(key="{event[id]}", name="book")
        async def book(event: dict[str, Any]) -> None:
            started.set()
            await proceed.wait()
            log.effects.append(event["id"])

        await self.send("a")
        queue = self.queue(dead_letters=False, ack_deadline=self.ack_deadline)
        consumer = Consumer(book, queue, concurrency=1)
        consumer.poll_timeout = 0.1
        task = asyncio.create_task(consumer.consume())
        await started.wait()
        await self.send("b")
        consumer.stop()
        await asyncio.sleep(5 * consumer.poll_timeout)  # it has noticed the stop and only waits for the work
        proceed.set()
        await task
        assert log.effects == ["a"]
        await self.until_remaining(1)
        async with self.consuming(book):
            await self.until_empty()
        assert log.effects == ["a", "b"]

    @on_event_loop
    async def test_messages_that_a_consumer_leaves_unsettled_go_to_another_one(self) -> None:
        once, log = AsyncOnce(MemoryStore(), lease="2s"), HandlerLog()
        started = asyncio.Event()

        @once(key="{event[id]}", name="book")
        async def book(event: dict[str, Any]) -> None:
            if not started.is_set():
                started.set()
                await asyncio.Event().wait()
            log.effects.append(event["id"])

        await self.send("a")
        queue = self.queue(dead_letters=False, ack_deadline=self.ack_deadline)
        task = asyncio.create_task(Consumer(book, queue).consume())
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        async with self.consuming(book):
            await self.until_empty()
        assert log.effects == ["a"]
