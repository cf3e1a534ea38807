"""Tests of how a delivery is settled, outcome by outcome, on a real broker."""

from __future__ import annotations

import json
from typing import Any

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.operations.claim import current_async_claim
from onceward.queues import Consumer, Message
from onceward.stores.memory.store import MemoryStore

from .base import (
    FIRST_DELAY,
    LONGEST_DELAY,
    AckLosingQueue,
    HandlerLog,
    QueueTestBase,
    failing_handler,
    on_event_loop,
    parked_records,
    recording_handler,
    wait_until,
)


class SettlementTests(QueueTestBase):
    """A delivery is acknowledged, retried, dead-lettered or parked."""

    @on_event_loop
    async def test_completed_work_is_acknowledged(self) -> None:
        once, log = AsyncOnce(MemoryStore()), HandlerLog()
        async with self.consuming(recording_handler(once, log)):
            await self.send("a", "b", "c")
            await self.until_empty()
        assert sorted(log.effects) == ["a", "b", "c"]

    @on_event_loop
    async def test_an_event_that_was_sent_twice_is_done_once_and_acknowledged_twice(self) -> None:
        once, log = AsyncOnce(MemoryStore()), HandlerLog()
        await self.send("a", "a", "b")
        async with self.consuming(recording_handler(once, log)), self.consuming(recording_handler(once, log)):
            await self.until_empty()
            await self.send("b", "a")
            await self.until_empty()
        assert sorted(log.effects) == ["a", "b"]

    @on_event_loop
    async def test_blocking_functions_are_done_in_threads(self) -> None:
        log = HandlerLog()
        once = Once(MemoryStore())

        @once(key="{event[id]}")
        def book(event: dict[str, Any]) -> None:
            log.effects.append(event["id"])

        await self.send("a", "b", "a")
        async with self.consuming(book):
            await self.until_empty()
        assert sorted(log.effects) == ["a", "b"]

    @on_event_loop
    async def test_the_handler_receives_the_message_with_its_id(self) -> None:
        once = AsyncOnce(MemoryStore())
        messages: list[Message] = []

        @once
        async def handle(event: dict[str, Any], message: Message) -> None:
            messages.append(message)
            assert event == json.loads(message)

        await self.send("a")
        async with self.consuming(handle):
            await self.until_empty()
        assert json.loads(messages[0])["id"] == "a"
        assert messages[0].deliveries == 1
        assert messages[0].id
        assert await once.read(messages[0].id, name=handle.operation.name) is not None

    @on_event_loop
    async def test_an_acknowledgement_that_was_lost_leads_to_a_replay_and_to_another_one(self) -> None:
        once, log = AsyncOnce(MemoryStore()), HandlerLog()
        queue: Any = AckLosingQueue(self.queue(dead_letters=False, ack_deadline=self.ack_deadline))
        await self.send("a")
        async with self.running(
            Consumer(recording_handler(once, log), queue, first_delay=FIRST_DELAY, longest_delay=LONGEST_DELAY)
        ):
            await wait_until(lambda: queue.lost > 0)
        await self.until_remaining(1)
        async with self.consuming(recording_handler(once, log)):
            await self.until_empty()
        assert log.effects == ["a"]
        assert once.counts["skipped"] >= 1

    @on_event_loop
    async def test_a_key_that_another_worker_processes_is_retried_after_a_delay(self) -> None:
        once, log = AsyncOnce(MemoryStore()), HandlerLog()
        book = recording_handler(once, log)
        async with once.claim(book.key({"id": "a"})) as claim:
            async with self.consuming(book):
                await self.send("a")
                await wait_until(lambda: once.counts.get("delivered_later", 0) >= 2)
                assert log.effects == []
                await self.until_remaining(1)
            await claim.complete(None)
        async with self.consuming(book):
            await self.until_empty()
        assert log.effects == []

    @on_event_loop
    async def test_failed_work_is_retried_and_then_acknowledged(self) -> None:
        once, log = AsyncOnce(MemoryStore()), HandlerLog()

        @once(key="{event[id]}", name="book")
        async def book(event: dict[str, Any]) -> None:
            if current_async_claim().attempt < 3:
                raise ConnectionError("the warehouse is down")
            log.effects.append(event["id"])

        await self.send("a", "b")
        async with self.consuming(book):
            await self.until_empty()
        assert sorted(log.effects) == ["a", "b"]
        assert once.counts["failed"] == 4

    @on_event_loop
    async def test_a_message_becomes_a_dead_letter_when_its_attempts_are_used_up(self) -> None:
        once = AsyncOnce(MemoryStore())
        await self.send("poison")
        async with self.consuming(failing_handler(once), dead_letters=True):
            await self.until_empty()
        assert [json.loads(body)["id"] for body in await self.dead_letters()] == ["poison"]
        assert once.counts["failed"] == 2

    @on_event_loop
    async def test_without_a_dead_letter_queue_such_a_message_is_parked(self) -> None:
        once = AsyncOnce(MemoryStore())
        await self.send("poison")
        async with self.consuming(failing_handler(once)):
            await self.until_empty()
        assert once.counts["failed"] == 2
        assert [state for _, state in await parked_records(once.store)] == ["ValueError"]

    @on_event_loop
    async def test_another_payload_under_the_same_key_becomes_a_dead_letter(self) -> None:
        once, log = AsyncOnce(MemoryStore()), HandlerLog()
        async with self.consuming(recording_handler(once, log), dead_letters=True):
            await self.send("a")
            await self.until_empty()
            await self.put(b'{"id": "a", "cents": 700}', "other")
            await self.until_empty()
        assert log.effects == ["a"]
        assert await self.dead_letters() == [b'{"id": "a", "cents": 700}']

    @on_event_loop
    async def test_another_payload_under_the_same_key_is_parked_never_acknowledged_away(self) -> None:
        once, log = AsyncOnce(MemoryStore()), HandlerLog()
        async with self.consuming(recording_handler(once, log)):
            await self.send("a")
            await self.until_empty()
            await self.put(b'{"id": "a", "cents": 700}', "other")
            await self.until_empty()
        assert log.effects == ["a"]
        assert [error for _, error in await parked_records(once.store)] == ["PayloadMismatch"]

    @on_event_loop
    async def test_a_message_that_cannot_be_decoded_becomes_a_dead_letter(self) -> None:
        once, log = AsyncOnce(MemoryStore()), HandlerLog()
        async with self.consuming(recording_handler(once, log), dead_letters=True):
            await self.put(b"no JSON", "odd")
            await self.send("a")
            await self.until_empty()
        assert await self.dead_letters() == [b"no JSON"]
        assert log.effects == ["a"]
