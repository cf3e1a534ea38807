"""What a consumer does on any broker: keys, batches, threads, and its configuration errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from onceward import AsyncOnce, ConfigurationError, Once, current_claim
from onceward.engine.attempt import Attempt
from onceward.engine.events import Event
from onceward.protocol.ports import Filter
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, ClaimRequest
from onceward.queues import Consumer, Delivery, MemoryQueue, Message
from onceward.queues.function_work import FunctionWork, decoder
from onceward.queues.in_flight import InFlight
from onceward.queues.settlement import DeliveryResult
from onceward.stores import MemoryStore
from onceward.testing.queues.base import AckLosingQueue, HandlerLog, UnreliableStore, parked_records, recording_handler
from tests.queues.consuming import consumed
from tests.queues.test_consumer_trouble import Nameless


async def test_a_batch_is_claimed_in_one_call() -> None:
    store, seen, queue = UnreliableStore(), HandlerLog(), MemoryQueue()
    for number in range(100):
        queue.put(json.dumps({"id": number}).encode())
    await consumed(queue, recording_handler(AsyncOnce(store), seen), concurrency=100)
    assert sorted(map(int, seen.effects)) == list(range(100))
    assert store.claims == 1


async def test_where_the_store_works_meanwhile_a_large_batch_is_claimed_in_parts() -> None:
    store, seen, queue = Overlapping(), HandlerLog(), MemoryQueue()
    once = AsyncOnce(store)
    for number in range(100):
        queue.put(json.dumps({"id": number % 80}).encode())
    await consumed(queue, recording_handler(once, seen), concurrency=100)
    assert sorted(map(int, seen.effects)) == list(range(80))
    assert once.counts["skipped"] == 20, "a repeat goes with the first of its key, wherever it stood in the batch"
    assert store.together == [40, 40]


async def test_a_small_batch_is_not_worth_two_calls() -> None:
    store, queue = Overlapping(), MemoryQueue()
    for number in range(79):
        queue.put(json.dumps({"id": number}).encode())
    await consumed(queue, recording_handler(AsyncOnce(store), HandlerLog()), concurrency=100)
    assert store.together == [79]


@pytest.mark.parametrize("together", [True, False])
async def test_claims_whose_work_was_cancelled_before_it_began_are_given_back(together: bool) -> None:
    """The cancellation comes in the same step that claims the second part: its tasks exist, but none has started."""
    store = Overlapping()
    store.inline = not together
    once, seen, queue = AsyncOnce(store), HandlerLog(), MemoryQueue()
    work = FunctionWork(recording_handler(once, seen), None, 100, "orders")

    class Cancelling(InFlight):
        def attach(self, delivery: Delivery, held: Attempt) -> None:
            super().attach(delivery, held)
            if delivery is deliveries[-1]:
                assert batch.cancel()

    async def settle(delivery: Delivery, result: DeliveryResult) -> None:
        pass

    for number in range(100):
        queue.put(json.dumps({"id": number}).encode())
    deliveries = await queue.receive(100, 1)
    in_flight = Cancelling(queue, None, lambda _what, _error: None)
    batch = asyncio.create_task(work.process(deliveries, in_flight, settle))
    with pytest.raises(asyncio.CancelledError):
        await batch
    assert len(seen.effects) == 50
    assert once.engine.heartbeat.shortest_lease() is None
    page = await once.store.scan(Filter(states=(RecordState.PENDING,)), cursor=None, limit=1, timeout=1)
    assert not page.records, "no consumer would ever get them while this process keeps their leases alive"


class Overlapping(MemoryStore):
    @property
    def batch_splits(self) -> int:
        return 2

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        if len(requests) > 1:
            self.together.append(len(requests))
        return await super().claim(requests, timeout=timeout)


async def test_a_key_that_comes_twice_in_a_batch_is_done_once_and_skipped_once() -> None:
    once, seen, queue = AsyncOnce(MemoryStore()), HandlerLog(), MemoryQueue()
    for _ in range(3):
        queue.put(b'{"id": "a"}')
    await consumed(queue, recording_handler(once, seen))
    assert seen.effects == ["a"]
    assert once.counts["skipped"] == 2


async def test_what_the_work_raises_is_in_the_log_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()

    @once(key="order:{event[id]}", final=ZeroDivisionError)
    async def book(event: dict[str, int]) -> float:
        return 1 / event["id"]

    queue.put(b'{"id": 0}')
    queue.put(b'{"id": 1}')
    await consumed(queue, book)
    [record] = [one for one in caplog.records if one.name == "onceward.raised"]
    assert "the work raised ZeroDivisionError in" in record.getMessage()
    assert ", in book" in record.getMessage()
    assert "division by zero" not in caplog.text, "a message may quote what was delivered"


@pytest.mark.mission("E4")
async def test_the_events_own_id_is_the_key_else_the_transports() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()
    done: list[str] = []

    @once(key=["event:{event[id]}", "message:{message.id}"], name="book", fingerprint=["event"])
    async def book(event: dict[str, Any], message: Message) -> None:
        done.append(message.id)

    queue.put(b'{"id": "e1"}', id="m1")
    queue.put(b'{"id":  "e1"}', id="m2")  # published again, under another message id
    queue.put(b"{}", id="m3")
    queue.put(b"{}", id="m3")
    await consumed(queue, book)
    assert sorted(done) == ["m1", "m3"]
    entry = await once.read("event:e1", name="book")
    assert entry is not None
    assert entry.note == {"message": "m1", "queue": "memory"}


async def test_without_a_key_the_message_is_the_work_not_its_content() -> None:
    once, seen, queue = AsyncOnce(MemoryStore()), HandlerLog(), MemoryQueue()

    @once(name="count")
    async def count(event: dict[str, Any]) -> None:
        seen.effects.append("up")

    queue.put(b'{"do": "up"}', id="m1")
    queue.put(b'{"do": "up"}', id="m2")
    queue.put(b'{"do": "up"}', id="m1")
    await consumed(queue, count)
    assert seen.effects == ["up", "up"]


async def test_a_transport_id_with_another_body_is_parked() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()

    @once(name="count")
    async def count(event: dict[str, Any]) -> None: ...

    queue.put(b'{"do": "up"}', id="m1")
    await consumed(queue, count)
    queue.put(b'{"do": "down"}', id="m1")
    await consumed(queue, count)
    assert await parked_records(once.store) == [("m1", "PayloadMismatch")]


@pytest.mark.fault("F72")
async def test_the_record_of_a_parked_message_says_where_it_came_from_and_why() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue("orders")
    queue.put(b"no JSON", id="m1")
    await consumed(queue, recording_handler(once, HandlerLog()))
    page = await once.store.scan(Filter(states=(RecordState.PARKED,)), cursor=None, limit=10, timeout=1)
    (record,) = page.records
    assert (record.scope, record.key, record.error_type) == ("default/book.message", "m1", "DecodeError")
    assert record.note["queue"] == "orders"
    assert record.note["body"].startswith("sha256:")


@pytest.mark.fault("F72")
async def test_a_message_without_any_id_and_key_is_parked_under_its_content() -> None:
    once, queue = AsyncOnce(MemoryStore()), Nameless()

    @once(name="count")
    async def count(event: dict[str, Any]) -> None: ...

    queue.put(b"{}")
    await consumed(queue, count)
    ((key, error),) = await parked_records(once.store)
    assert key.startswith("sha256:")
    assert error == "MissingKey"


async def test_a_client_that_stops_stops_its_consumers() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()
    consumer = Consumer(recording_handler(once, HandlerLog()), queue)
    task = asyncio.create_task(consumer.consume())
    once.stop()
    await task


async def test_a_blocking_handler_has_its_claim() -> None:
    once, queue = Once(MemoryStore()), MemoryQueue()
    tokens: list[int] = []

    @once(key="{event[id]}")
    def book(event: dict[str, Any]) -> None:
        tokens.append(current_claim().token)

    queue.put(b'{"id": "a"}')
    await consumed(queue, book)
    assert len(tokens) == 1
    once.close()


async def test_a_handler_may_raise_what_no_future_takes() -> None:
    once, queue = Once(MemoryStore()), MemoryQueue()
    tried: list[int] = []

    @once(key="{event[id]}")
    def book(event: dict[str, Any]) -> None:
        tried.append(1)
        if len(tried) == 1:
            raise StopIteration

    queue.put(b'{"id": "a"}')
    await consumed(queue, book)
    assert len(tried) == 2
    once.close()


async def test_events_report_the_outcome_of_a_message() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue("orders", dead_letters=True)
    events: list[Event] = []
    once.subscribe(events.append)

    @once(key="{event[id]}", max_attempts=2, name="book")
    async def book(event: dict[str, Any]) -> None:
        raise ValueError("no such order")

    queue.put(b'{"id": "a"}', id="m1")
    await consumed(queue, book)
    ours = [(event.name, event.key, event.scope) for event in events if event.scope == "orders"]
    assert ours == [("delivered_later", "m1", "orders"), ("dead_lettered", "m1", "orders")]


@pytest.mark.finding("N23")
async def test_a_dead_letter_is_counted_and_raises_an_alert() -> None:
    store = MemoryStore()
    once, queue = AsyncOnce(store, counters=True), MemoryQueue("orders", dead_letters=True)

    @once(key="{event[id]}", max_attempts=1, name="book")
    async def book(event: dict[str, Any]) -> None:
        raise ValueError("no such order")

    queue.put(b'{"id": "a"}', id="m1")
    await consumed(queue, book)
    assert len(queue.dead) == 1
    await once.close()  # writes the counts
    async with AsyncOnce(store) as operator:
        found = [(one.rule, one.scope, one.figure) for one in await operator.check()]
    assert ("dead_letters", "orders", 1) in found


class Order(msgspec.Struct):
    id: str
    cents: int = 0


def test_a_body_is_read_as_what_the_parameter_says() -> None:
    def struct(event: Order) -> None: ...
    def raw(event: bytes) -> None: ...
    def text(event: str) -> None: ...
    def whole(event: Message) -> None: ...
    def anything(event: Any) -> None: ...

    message = Message(b'{"id": "7"}', "m1")
    assert decoder(raw, "event")(message) == b'{"id": "7"}'
    assert type(decoder(raw, "event")(message)) is bytes
    assert decoder(text, "event")(message) == '{"id": "7"}'
    assert decoder(whole, "event")(message) is message
    assert decoder(anything, "event")(message) == {"id": "7"}
    struct.__annotations__["event"] = Order
    assert decoder(struct, "event")(message) == Order("7")


async def test_what_the_user_decodes_is_the_event() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()
    got: list[str] = []

    @once(key="{event}")
    async def book(event: str) -> None:
        got.append(event)

    queue.put(b"a;b")
    await consumed(queue, book, decode=lambda message: message.decode().split(";")[0])
    assert got == ["a"]


def test_what_cannot_work_is_refused_where_it_is_declared() -> None:
    once = Once(MemoryStore())

    def plain(event: Any) -> None: ...

    @once(key="x")
    def two(event: Any, other: Any) -> None: ...

    @once(key="x")
    def one(event: Any) -> None: ...

    for handler, concurrency, why in [
        (plain, 1, "neither a decorated function"),
        (two, 1, "parameters that a consumer cannot fill"),
        (one, 0, "would receive no messages"),
        (once.state("trucks"), 1, "nor a state with a decode="),
    ]:
        with pytest.raises(ConfigurationError, match=why):
            Consumer(handler, MemoryQueue(), concurrency=concurrency)


def test_the_conformance_kit_notices_a_broken_queue() -> None:
    """A queue that acknowledges instead of delaying loses messages: the conformance test fails on it."""
    from tests.queues.test_memory import TestMemory

    class Loses(MemoryQueue):
        async def nack(self, delivery: Delivery, delay: float) -> None:
            await self.ack([delivery])

    kit = TestMemory()
    kit.kept = Loses(ack_deadline=1.0)
    with pytest.raises(AssertionError):
        kit.test_failed_work_is_retried_and_then_acknowledged()
    assert AckLosingQueue(kit.kept).name == "memory"
