"""What a consumer records: states, and the results of a batch together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once, StoreUnavailable
from onceward.engine.attempt import Attempt
from onceward.latest import StateEvent
from onceward.protocol.record import RecordState
from onceward.queues import Consumer, Delivery, MemoryQueue, Message
from onceward.queues.claims import claim_deliveries
from onceward.queues.result_batch import ResultBatch
from onceward.stores import MemoryStore
from onceward.testing.queues.base import HandlerLog, parked_records, recording_handler, wait_until
from tests.queues.consuming import consumed


@pytest.mark.mission("E3")
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_state_takes_a_batch_in_one_call_and_stale_events_are_acknowledged(blocking: bool) -> None:
    store = Keeping()
    once: Any = Once(store) if blocking else AsyncOnce(store)
    trucks = once.state("trucks", max_clock_skew=None)
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
    assert await parked_records(store) == [("odd", "JSONDecodeError")]
    current = await (asyncio.to_thread(trucks.get, 7) if blocking else trucks.get(7))
    assert current == "Potsdam"
    assert once.counts["stale"] == 1


async def test_an_event_of_the_future_is_parked_as_a_message() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()
    queue.put(b"2999-01-01T00:00:00Z", id="m1")
    trucks = once.state("trucks")
    await consumed(queue, trucks, decode=lambda message: StateEvent(7, message.decode(), "Mars"))
    assert await parked_records(once.store) == [("m1", "FutureEvent")]


class Keeping(MemoryStore):
    calls = 0

    async def apply_events(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        return await super().apply_events(*arguments, **options)


async def test_results_of_a_batch_are_recorded_together(tmp_path: Path) -> None:
    """Handlers that end at the same time share a call, as claims do; each still has its own record."""
    once, seen, queue = AsyncOnce(f"sqlite:///{tmp_path}/shop.db"), HandlerLog(), MemoryQueue()
    calls = settlements_of(once)
    for number in range(100):
        queue.put(json.dumps({"id": number}).encode())
    await consumed(queue, recording_handler(once, seen), concurrency=100)
    assert sorted(map(int, seen.effects)) == list(range(100))
    assert once.counts["completed"] == 100
    assert sum(calls) == 100
    assert len(calls) < 20
    await once.close()


@pytest.mark.fault("F71")
async def test_results_that_the_store_did_not_confirm_are_sent_again(tmp_path: Path) -> None:
    once, seen, queue = AsyncOnce(f"sqlite:///{tmp_path}/shop.db"), HandlerLog(), MemoryQueue()
    calls = settlements_of(once, refusals=1)
    for number in range(5):
        queue.put(json.dumps({"id": number}).encode())
    await consumed(queue, recording_handler(once, seen))
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
    book = recording_handler(once, HandlerLog())
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
    assert entry.state is RecordState.COMPLETED
    await once.close()


def settlements_of(once: AsyncOnce, refusals: int = 0) -> list[int]:
    """Count the settlements of each call to the store from now on."""
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
    consumer = Consumer(recording_handler(once, HandlerLog()), queue)
    task = asyncio.create_task(consumer.consume())
    await wait_until(lambda: once.counts.get("completed", 0) == 1)
    consumer.stop()
    await task
    assert len(queue) == 0


class SlowToHear(MemoryQueue):
    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await asyncio.sleep(2 * Consumer.poll_timeout)
        await super().ack(deliveries)


async def test_unrecorded_results_are_recorded_when_the_consumer_ends(tmp_path: Path) -> None:
    """A task that is cancelled before its first step never runs."""
    once = AsyncOnce(f"sqlite:///{tmp_path}/shop.db", lease="60s")
    book = recording_handler(once, HandlerLog())
    (held,) = await claim_deliveries(once.engine, [book.job(({"id": "a"},), {})])
    assert isinstance(held, Attempt)
    results = ResultBatch(once.engine, NeverStarts.settle, NeverStarts.acknowledge)
    await asyncio.create_task(results.run(Delivery(Message(b"")), held, NeverStarts()))
    await results.recover(asyncio.CancelledError())
    entry = await once.read(book.key({"id": "a"}))
    assert entry is not None
    assert entry.state is RecordState.COMPLETED
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
