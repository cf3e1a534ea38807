"""What goes wrong around a consumer: no store, work that takes long, an orderly end and a sudden one."""

from __future__ import annotations

import asyncio
from typing import Any

from onceward.client.aio import AsyncOnce
from onceward.queues import Consumer, Message
from onceward.stores.memory.store import MemoryStore

from .stage import Seen, Shaky, Stage, noting, until


class TroubleStories(Stage):
    """Nothing is lost, and nothing is done twice."""

    def test_without_a_store_nothing_is_done_and_nothing_acknowledged(self) -> None:
        async def story() -> None:
            store, seen = Shaky(), Seen()
            once = AsyncOnce(store)
            store.down = True
            async with self.consuming(noting(once, seen)):
                await self.send("a")
                await until(lambda: once.counts.get("delivered_later", 0) >= 1)
                assert seen.effects == []
                await self.until_left(1)
                store.down = False
                await self.until_empty()
            assert seen.effects == ["a"]

        asyncio.run(story())

    def test_without_a_store_it_is_done_all_the_same_if_that_was_declared(self) -> None:
        """And if that fails, it is not acknowledged either: here the third MERGE works."""

        async def story() -> None:
            store, seen = Shaky(), Seen()
            once = AsyncOnce(store)
            store.down = True
            tried: list[str] = []

            @once(key="{event[id]}", on_store_down="run")
            async def merge(event: dict[str, Any]) -> None:
                tried.append(event["id"])
                if len(tried) < 3:
                    raise ConnectionError("the MERGE failed")
                seen.effects.append(event["id"])

            async with self.consuming(merge):
                await self.send("a")
                await self.until_empty()
            assert seen.effects == ["a"]
            assert tried == ["a"] * 3

        asyncio.run(story())

    def test_work_that_outlasts_the_ack_deadline_is_neither_delivered_again_nor_doubled(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore(), lease="10s"), Seen()

            @once(key="{event[id]}", name="book")
            async def book(event: dict[str, Any], message: Message) -> None:
                seen.deliveries.append((event["id"], message.deliveries))
                await asyncio.sleep(1.5 * self.ack_deadline)
                seen.effects.append(event["id"])

            async with self.consuming(book), self.consuming(book):
                await self.send("a")
                await self.until_empty()
            assert seen.effects == ["a"]
            assert seen.deliveries == [("a", 1)]
            assert once.counts.get("delivered_later", 0) == 0

        asyncio.run(story())

    def test_a_consumer_that_stops_finishes_what_it_has_begun_and_takes_no_more(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore()), Seen()
            begun, go_on = asyncio.Event(), asyncio.Event()

            @once(key="{event[id]}", name="book")
            async def book(event: dict[str, Any]) -> None:
                begun.set()
                await go_on.wait()
                seen.effects.append(event["id"])

            await self.send("a")
            queue = self.queue(dead_letters=False, ack_deadline=self.ack_deadline)
            consumer = Consumer(book, queue, concurrency=1)
            consumer.lookup = 0.1
            task = asyncio.create_task(consumer.consume())
            await begun.wait()
            await self.send("b")
            consumer.stop()
            await asyncio.sleep(5 * consumer.lookup)  # it has noticed, and waits for the work alone
            go_on.set()
            await task
            assert seen.effects == ["a"]
            await self.until_left(1)
            async with self.consuming(book):
                await self.until_empty()
            assert seen.effects == ["a", "b"]

        asyncio.run(story())

    def test_what_a_consumer_leaves_unsettled_goes_to_another_one(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore(), lease="2s"), Seen()
            begun = asyncio.Event()

            @once(key="{event[id]}", name="book")
            async def book(event: dict[str, Any]) -> None:
                if not begun.is_set():
                    begun.set()
                    await asyncio.Event().wait()
                seen.effects.append(event["id"])

            await self.send("a")
            queue = self.queue(dead_letters=False, ack_deadline=self.ack_deadline)
            task = asyncio.create_task(Consumer(book, queue).consume())
            await begun.wait()
            task.cancel()
            await asyncio.wait([task])
            async with self.consuming(book):
                await self.until_empty()
            assert seen.effects == ["a"]

        asyncio.run(story())
