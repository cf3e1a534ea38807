"""What a consumer does by itself, whatever the broker: keys, batches, threads, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward import AsyncOnce, ConfigurationError, MemoryStore, Once, StateEvent, StoreUnavailable, current_claim
from onceward.core.deliver import claim_together
from onceward.core.held import Held
from onceward.model.record import State
from onceward.observe.events import Event
from onceward.ports import Filter
from onceward.queues import Consumer, Delivery, MemoryQueue, Message
from onceward.queues.results import Results
from onceward.queues.work import decoder
from onceward.testing.queues import Forgetful, Seen, Shaky, noting, parked, until


async def consumed(queue: MemoryQueue, handler: Any, **choices: Any) -> None:
    """Everything that is in the queue."""
    consumer = Consumer(handler, queue, first_delay="10ms", longest_delay="100ms", **choices)
    consumer.glance = 0.05
    task = asyncio.create_task(consumer.consume())
    await until(lambda: len(queue) == 0 or task.done())
    consumer.stop()
    await task


async def test_a_batch_is_claimed_in_one_call() -> None:
    store, seen, queue = Shaky(), Seen(), MemoryQueue()
    for number in range(100):
        queue.put(json.dumps({"id": number}).encode())
    await consumed(queue, noting(AsyncOnce(store), seen), at_once=100)
    assert sorted(map(int, seen.effects)) == list(range(100))
    assert store.claims == 1


async def test_a_key_that_comes_twice_in_a_batch_is_done_once_and_skipped_once() -> None:
    once, seen, queue = AsyncOnce(MemoryStore()), Seen(), MemoryQueue()
    for _ in range(3):
        queue.put(b'{"id": "a"}')
    await consumed(queue, noting(once, seen))
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
    once, seen, queue = AsyncOnce(MemoryStore()), Seen(), MemoryQueue()

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
    assert await parked(once.store) == [("m1", "PayloadMismatch")]


@pytest.mark.fault("F72")
async def test_the_record_of_a_parked_message_says_where_it_came_from_and_why() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue("orders")
    queue.put(b"no JSON", id="m1")
    await consumed(queue, noting(once, Seen()))
    page = await once.store.scan(Filter(states=(State.PARKED,)), cursor=None, limit=10, timeout=1)
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
    ((key, error),) = await parked(once.store)
    assert key.startswith("sha256:")
    assert error == "MissingKey"


class Nameless(MemoryQueue):
    """A broker whose senders give no ids."""

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        return [Delivery(Message(one.message.body), one.handle) for one in await super().receive(most, wait)]


@pytest.mark.fault("F72")
async def test_work_that_kills_its_process_again_and_again_is_set_aside() -> None:
    """Attempts count on claim: the last claimant finds the record parked."""
    once, queue = AsyncOnce(MemoryStore(), lease="50ms"), MemoryQueue(dead_letters=True)

    @once(key="{event[id]}", name="book", max_attempts=2)
    async def book(event: dict[str, Any]) -> None: ...

    for _ in range(2):
        claimed = once.claim(book.key({"id": "a"}), max_attempts=2)
        held = await claimed.__aenter__()
        held._held.let_lapse()
        held._held.leave()
        await asyncio.sleep(0.06)
    queue.put(b'{"id": "a"}')
    await consumed(queue, book)
    assert [message.body for message, _ in queue.dead] == [b'{"id": "a"}']


async def test_a_dead_letter_queue_that_is_away_is_asked_again() -> None:
    once, queue = AsyncOnce(MemoryStore()), AwayAtFirst(dead_letters=True)
    queue.put(b"no JSON")
    await consumed(queue, noting(once, Seen()))
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
    store, queue = Shaky(), MemoryQueue()
    once = AsyncOnce(store)
    store.down = True
    queue.put(b"no JSON")
    task = asyncio.create_task((consumer := Consumer(noting(once, Seen()), queue, first_delay="10ms")).consume())
    await until(lambda: once.counts.get("queue_failed", 0) > 0)
    assert len(queue) == 1
    store.down = False
    await until(lambda: len(queue) == 0)
    consumer.stop()
    await task
    assert [error for _, error in await parked(once.store)] == ["DecodeError"]


async def test_a_broker_that_is_away_is_asked_again() -> None:
    once, seen, queue = AsyncOnce(MemoryStore()), Seen(), Interrupted()
    queue.put(b'{"id": "a"}')
    await consumed(queue, noting(once, seen))
    assert seen.effects == ["a"]
    assert once.counts["queue_failed"] == 3


class Interrupted(MemoryQueue):
    troubles = 3

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        if self.troubles:
            self.troubles -= 1
            raise ConnectionError("away")
        return await super().receive(most, wait)


@pytest.mark.fault("F70")
async def test_a_delivery_whose_claim_is_lost_is_not_held_on_to() -> None:
    """Else the broker would keep it from whoever could do it now."""
    once, queue = AsyncOnce(MemoryStore(), lease="300ms"), Watched(ack_deadline=0.3)
    begun, go_on = asyncio.Event(), asyncio.Event()
    queue.put(b'{"id": "a"}')

    @once(key="{event[id]}", name="book")
    async def book(event: dict[str, Any]) -> None:
        begun.set()
        await go_on.wait()

    consumer = Consumer(book, queue)
    task = asyncio.create_task(consumer.consume())
    await begun.wait()
    await until(lambda: bool(queue.extended))
    await once.forget(book.key({"id": "a"}), force=True)
    await until(lambda: once.counts.get("lost", 0) > 0)
    queue.extended.clear()
    await until(lambda: len(queue.delivered) > 1)  # the broker gives it to the next one
    assert queue.delivered[0] not in queue.extended
    go_on.set()
    consumer.stop()
    await task


class Watched(MemoryQueue):
    def __init__(self, **choices: Any) -> None:
        super().__init__(**choices)
        self.delivered: list[Delivery] = []
        self.extended: list[Delivery] = []

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        received = await super().receive(most, wait)
        self.delivered += received
        return received

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        self.extended += deliveries
        await super().extend(deliveries)


async def test_a_client_that_stops_stops_its_consumers() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()
    consumer = Consumer(noting(once, Seen()), queue)
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


async def test_events_tell_what_became_of_a_message() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue("orders", dead_letters=True)
    told: list[Event] = []
    once.subscribe(told.append)

    @once(key="{event[id]}", max_attempts=2, name="book")
    async def book(event: dict[str, Any]) -> None:
        raise ValueError("no such order")

    queue.put(b'{"id": "a"}', id="m1")
    await consumed(queue, book)
    ours = [(event.name, event.key, event.scope) for event in told if event.scope == "orders"]
    assert ours == [("delivered_later", "m1", "orders"), ("dead_lettered", "m1", "orders")]


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

    for handler, at_once, why in [
        (plain, 1, "no decorated function"),
        (two, 1, "parameters that a consumer does not know"),
        (one, 0, "would take no message"),
        (once.state("trucks"), 1, "no state with a decode="),
    ]:
        with pytest.raises(ConfigurationError, match=why):
            Consumer(handler, MemoryQueue(), at_once=at_once)


def test_the_kits_own_broken_queue_would_be_noticed() -> None:
    """A queue that acknowledges what it is asked to deliver later loses messages: the story fails on it."""
    from tests.queues.test_memory import TestMemory

    class Loses(MemoryQueue):
        async def later(self, delivery: Delivery, seconds: float) -> None:
            await self.ack([delivery])

    kit = TestMemory()
    kit._queue = Loses(ack_deadline=1.0)
    with pytest.raises(AssertionError):
        kit.test_what_failed_is_tried_again_and_then_acknowledged()
    assert Forgetful(kit._queue).name == "memory"


@pytest.mark.mission("E3")
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_state_takes_a_batch_in_one_call_and_stale_events_are_acknowledged(blocking: bool) -> None:
    store = Keeping()
    once: Any = Once(store) if blocking else AsyncOnce(store)
    trucks = once.state("trucks", ahead=None)
    queue = MemoryQueue()
    for second, place in ((2, "Potsdam"), (1, "Berlin"), (2, "Potsdam")):
        event = {"truck": 7, "at": f"2026-03-01T12:00:0{second}Z", "place": place}
        queue.put(json.dumps(event).encode(), id=f"m{second}")

    def read(message: Message) -> StateEvent[str]:
        event = json.loads(message)
        return StateEvent(event["truck"], event["at"], event["place"])

    queue.put(b"no JSON", id="odd")
    await consumed(queue, trucks, decode=read)
    assert store.calls == 1
    assert await parked(store) == [("odd", "JSONDecodeError")]
    current = await (asyncio.to_thread(trucks.get, 7) if blocking else trucks.get(7))
    assert current == "Potsdam"
    assert once.counts["stale"] == 1


async def test_an_event_of_the_future_is_parked_as_a_message() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()
    queue.put(b"2999-01-01T00:00:00Z", id="m1")
    trucks = once.state("trucks")
    await consumed(queue, trucks, decode=lambda message: StateEvent(7, message.decode(), "Mars"))
    assert await parked(once.store) == [("m1", "FutureEvent")]


class Keeping(MemoryStore):
    calls = 0

    async def keep_newest(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        return await super().keep_newest(*arguments, **options)


async def test_results_of_a_batch_are_recorded_together(tmp_path: Path) -> None:
    """Handlers that end at the same time share a call, as claims do; each still has a record of its own."""
    once, seen, queue = AsyncOnce(f"sqlite:///{tmp_path}/shop.db"), Seen(), MemoryQueue()
    calls = settlements_of(once)
    for number in range(100):
        queue.put(json.dumps({"id": number}).encode())
    await consumed(queue, noting(once, seen), at_once=100)
    assert sorted(map(int, seen.effects)) == list(range(100))
    assert once.counts["completed"] == 100
    assert sum(calls) == 100
    assert len(calls) < 20
    await once.close()


@pytest.mark.fault("F71")
async def test_results_that_the_store_did_not_confirm_are_sent_again(tmp_path: Path) -> None:
    once, seen, queue = AsyncOnce(f"sqlite:///{tmp_path}/shop.db"), Seen(), MemoryQueue()
    calls = settlements_of(once, refusals=1)
    for number in range(5):
        queue.put(json.dumps({"id": number}).encode())
    await consumed(queue, noting(once, seen))
    assert sorted(map(int, seen.effects)) == list(range(5))
    assert once.counts["completed"] == 5
    assert calls == [5, 1, 1, 1, 1, 1]
    await once.close()


async def test_a_cancelled_consumer_records_what_had_returned(tmp_path: Path) -> None:
    once, queue = AsyncOnce(f"sqlite:///{tmp_path}/shop.db", lease="60s"), MemoryQueue()
    go_on, waiting = asyncio.Event(), asyncio.Event()
    settle = once.store.settle

    async def slowly(*arguments: Any, **options: Any) -> Any:
        waiting.set()
        await go_on.wait()
        return await settle(*arguments, **options)

    once.store.settle = slowly  # type: ignore[method-assign]  # the store's answer takes its time
    book = noting(once, Seen())
    queue.put(b'{"id": "a"}')
    task = asyncio.create_task(Consumer(book, queue).consume())
    await waiting.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([task])
    assert task.cancelled()
    entry = await once.read(book.key({"id": "a"}))
    assert entry is not None
    assert entry.state is State.COMPLETED
    await once.close()


def settlements_of(once: AsyncOnce, refusals: int = 0) -> list[int]:
    """How many settlements each call to the store has, from now on."""
    calls: list[int] = []
    settle = once.store.settle

    async def counted(settlements: Sequence[Any], **options: Any) -> Any:
        calls.append(len(settlements))
        if len(calls) <= refusals:
            raise StoreUnavailable("down")
        return await settle(settlements, **options)

    once.store.settle = counted  # type: ignore[method-assign]  # counted on its way
    return calls


async def test_a_consumer_that_stops_waits_for_its_last_acknowledgements() -> None:
    once, queue = AsyncOnce(MemoryStore()), SlowToHear()
    queue.put(b'{"id": "a"}')
    consumer = Consumer(noting(once, Seen()), queue)
    task = asyncio.create_task(consumer.consume())
    await until(lambda: once.counts.get("completed", 0) == 1)
    consumer.stop()
    await task
    assert len(queue) == 0


class SlowToHear(MemoryQueue):
    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await asyncio.sleep(2 * Consumer.glance)
        await super().ack(deliveries)


async def test_results_that_nobody_came_to_record_are_recorded_on_the_way_out(tmp_path: Path) -> None:
    """A task that is cancelled before its first step never takes it."""
    once = AsyncOnce(f"sqlite:///{tmp_path}/shop.db", lease="60s")
    book = noting(once, Seen())
    (held,) = await claim_together(once.engine, [book.job(({"id": "a"},), {})])
    assert isinstance(held, Held)
    results = Results(once.engine, NeverStarts.settle, NeverStarts.acknowledge)
    await asyncio.create_task(results.of(Delivery(Message(b"")), held, NeverStarts()))
    await results.recover(asyncio.CancelledError())
    entry = await once.read(book.key({"id": "a"}))
    assert entry is not None
    assert entry.state is State.COMPLETED
    await once.close()


class NeverStarts(asyncio.TaskGroup):
    def create_task(self, coro: Any, **_: Any) -> Any:
        coro.close()

    @staticmethod
    async def settle(delivery: Delivery, outcome: object) -> None:
        raise AssertionError("nothing was recorded")

    @staticmethod
    def acknowledge(delivery: Delivery) -> None:
        raise AssertionError("nothing was recorded")
