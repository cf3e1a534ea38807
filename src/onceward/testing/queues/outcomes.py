"""What becomes of a delivery, outcome by outcome: the rule, told on a broker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.operations.claim import current_async_claim
from onceward.queues import Consumer, Message
from onceward.stores.memory.store import MemoryStore

from .stage import FIRST, LONGEST, Forgetful, Seen, Stage, noting, parked, poisoned, until


class RuleStories(Stage):
    """Acknowledged, later, dead letter, or parked."""

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
            queue: Any = Forgetful(self.queue(dead_letters=False, ack_deadline=self.ack_deadline))
            await self.send("a")
            async with self.running(Consumer(noting(once, seen), queue, first_delay=FIRST, longest_delay=LONGEST)):
                await until(lambda: queue.lost > 0)
            await self.until_left(1)
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
                    await self.until_left(1)
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
