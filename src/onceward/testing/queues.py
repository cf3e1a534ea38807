"""The conformance kit of queues: the author of an adapter says how messages get there, and gets the whole story.

    from onceward.testing.queues import QueueConformance

    class TestMyQueue(QueueConformance):
        def queue(self, *, dead_letters, ack_deadline): return MyQueue(…)
        async def put(self, body, id): …
        async def left(self): …
        async def dead(self): …

Each test runs a real consumer on the real broker, with a store in memory. Nothing here counts seconds: it waits for
what must happen. Only "not delivered again while it is worked on" takes its time, one and a half ack deadlines.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from onceward.aio import AsyncOnce
from onceward.claims import current_async_claim
from onceward.client import Once
from onceward.errors import StoreUnavailable
from onceward.model.record import Answer, ClaimRequest, State
from onceward.ports import Filter, Store
from onceward.queues import Consumer, Delivery, Message, Queue
from onceward.stores.memory import MemoryStore

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


class QueueConformance:
    """Everything that an adapter must do. Every test has a broker's queue of its own, empty at first."""

    ack_deadline = 3.0
    """Seconds; long enough that a busy machine extends in time."""

    # ── what an adapter says about itself ──

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

    # ── the story ──

    def test_what_is_done_is_acknowledged(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore()), Seen()
            async with self.consuming(noting(once, seen)):
                await self.send("a", "b", "c")
                await self.until_empty()
            assert sorted(seen.effects) == ["a", "b", "c"]

        asyncio.run(story())

    def test_an_event_that_was_sent_twice_is_done_once_and_acknowledged_twice(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore()), Seen()
            await self.send("a", "a", "b")
            async with self.consuming(noting(once, seen)), self.consuming(noting(once, seen)):
                await self.until_empty()
                await self.send("b", "a")
                await self.until_empty()
            assert sorted(seen.effects) == ["a", "b"]

        asyncio.run(story())

    def test_blocking_functions_are_done_in_threads(self) -> None:
        async def story() -> None:
            seen = Seen()
            once = Once(MemoryStore())

            @once(key="{event[id]}")
            def book(event: dict[str, Any]) -> None:
                seen.effects.append(event["id"])

            await self.send("a", "b", "a")
            async with self.consuming(book):
                await self.until_empty()
            assert sorted(seen.effects) == ["a", "b"]

        asyncio.run(story())

    def test_a_message_comes_with_its_id(self) -> None:
        async def story() -> None:
            once = AsyncOnce(MemoryStore())
            told: list[Message] = []

            @once
            async def look(event: dict[str, Any], message: Message) -> None:
                told.append(message)
                assert event == json.loads(message)

            await self.send("a")
            async with self.consuming(look):
                await self.until_empty()
            assert json.loads(told[0])["id"] == "a"
            assert told[0].deliveries == 1
            assert told[0].id
            assert await once.read(told[0].id, name=look.operation.name) is not None

        asyncio.run(story())

    def test_an_acknowledgement_that_was_lost_leads_to_a_replay_and_to_another_one(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore()), Seen()
            queue = Forgetful(self.queue(dead_letters=False, ack_deadline=self.ack_deadline))
            await self.send("a")
            async with self.running(Consumer(noting(once, seen), queue, first_delay=FIRST, longest_delay=LONGEST)):
                await until(lambda: queue.lost > 0)
            assert await self.left() == 1
            async with self.consuming(noting(once, seen)):
                await self.until_empty()
            assert seen.effects == ["a"]
            assert once.counts["skipped"] >= 1

        asyncio.run(story())

    def test_what_runs_elsewhere_comes_again_but_not_at_once(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore()), Seen()
            book = noting(once, seen)
            async with once.claim(book.key({"id": "a"})) as claim:
                async with self.consuming(book):
                    await self.send("a")
                    await until(lambda: once.counts.get("delivered_later", 0) >= 2)
                    assert seen.effects == []
                    assert await self.left() == 1
                await claim.complete(None)
            async with self.consuming(book):
                await self.until_empty()
            assert seen.effects == []

        asyncio.run(story())

    def test_what_failed_is_tried_again_and_then_acknowledged(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore()), Seen()

            @once(key="{event[id]}", name="book")
            async def book(event: dict[str, Any]) -> None:
                if current_async_claim().attempt < 3:
                    raise ConnectionError("the warehouse is away")
                seen.effects.append(event["id"])

            await self.send("a", "b")
            async with self.consuming(book):
                await self.until_empty()
            assert sorted(seen.effects) == ["a", "b"]
            assert once.counts["failed"] == 4

        asyncio.run(story())

    def test_poison_becomes_a_dead_letter_when_its_attempts_are_used_up(self) -> None:
        async def story() -> None:
            once = AsyncOnce(MemoryStore())
            await self.send("poison")
            async with self.consuming(poisoned(once), dead_letters=True):
                await self.until_empty()
            assert [json.loads(body)["id"] for body in await self.dead()] == ["poison"]
            assert once.counts["failed"] == 2

        asyncio.run(story())

    def test_poison_is_parked_where_there_is_no_dead_letter_queue(self) -> None:
        async def story() -> None:
            once = AsyncOnce(MemoryStore())
            await self.send("poison")
            async with self.consuming(poisoned(once)):
                await self.until_empty()
            assert once.counts["failed"] == 2
            assert [state for _, state in await parked(once.store)] == ["ValueError"]

        asyncio.run(story())

    def test_another_payload_under_the_same_key_becomes_a_dead_letter(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore()), Seen()
            async with self.consuming(noting(once, seen), dead_letters=True):
                await self.send("a")
                await self.until_empty()
                await self.put(b'{"id": "a", "cents": 700}', "other")
                await self.until_empty()
            assert seen.effects == ["a"]
            assert await self.dead() == [b'{"id": "a", "cents": 700}']

        asyncio.run(story())

    def test_another_payload_under_the_same_key_is_parked_never_acknowledged_away(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore()), Seen()
            async with self.consuming(noting(once, seen)):
                await self.send("a")
                await self.until_empty()
                await self.put(b'{"id": "a", "cents": 700}', "other")
                await self.until_empty()
            assert seen.effects == ["a"]
            assert [error for _, error in await parked(once.store)] == ["PayloadMismatch"]

        asyncio.run(story())

    def test_what_nobody_can_read_is_set_aside(self) -> None:
        async def story() -> None:
            once, seen = AsyncOnce(MemoryStore()), Seen()
            async with self.consuming(noting(once, seen), dead_letters=True):
                await self.put(b"no JSON", "odd")
                await self.send("a")
                await self.until_empty()
            assert await self.dead() == [b"no JSON"]
            assert seen.effects == ["a"]

        asyncio.run(story())

    def test_without_a_store_nothing_is_done_and_nothing_acknowledged(self) -> None:
        async def story() -> None:
            store, seen = Shaky(), Seen()
            once = AsyncOnce(store)
            store.down = True
            async with self.consuming(noting(once, seen)):
                await self.send("a")
                await until(lambda: once.counts.get("delivered_later", 0) >= 1)
                assert seen.effects == []
                assert await self.left() == 1
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
            consumer = Consumer(book, queue, at_once=1)
            consumer.glance = 0.1
            task = asyncio.create_task(consumer.consume())
            await begun.wait()
            await self.send("b")
            consumer.stop()
            go_on.set()
            await task
            assert seen.effects == ["a"]
            assert await self.left() == 1
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

    # ── the stage ──

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
        consumer.glance = 0.1
        task = asyncio.create_task(consumer.consume())
        try:
            yield consumer
        finally:
            consumer.stop()
            await task

    async def until_empty(self) -> None:
        async def is_empty() -> bool:
            return await self.left() == 0

        await until(is_empty)


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
    page = await store.scan(Filter(states=(State.PARKED,)), cursor=None, limit=100, timeout=PATIENCE)
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
        await asyncio.sleep(0.01 if at_hand else 0.05)  # a broker is asked less often
