"""A consumer that passes whole batches to one call: the outcome of each delivery."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError, Mismatch, Once, Replayed, StoreUnavailable
from onceward.queues import Batch, Consumer, MemoryQueue
from onceward.stores import MemoryStore
from onceward.testing.queues.base import parked_records, wait_until

Clients = Callable[[], Once | AsyncOnce]


@pytest.fixture(params=[Once, AsyncOnce], ids=["blocking", "async"])
def once(request: pytest.FixtureRequest) -> Once | AsyncOnce:
    client: Once | AsyncOnce = request.param(MemoryStore())
    return client


class Warehouse:
    """Merges rows: it knows which rows it has."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}
        self.sizes: list[int] = []
        self.away = 0

    def merge(self, events: Sequence[dict[str, Any]]) -> list[Any]:
        self.sizes.append(len(events))
        if self.away:
            self.away -= 1
            raise StoreUnavailable("the warehouse is away")
        outcomes: list[Any] = []
        for event in events:
            before = self.rows.setdefault(event["id"], event["text"])
            outcomes.append(None if before == event["text"] else Mismatch(key=str(event["id"])))
        return outcomes


async def consumed(queue: MemoryQueue, batch: Batch, **choices: Any) -> None:
    consumer = Consumer(batch, queue, first_delay="10ms", longest_delay="50ms", **choices)
    consumer.poll_timeout = 0.05
    task = asyncio.create_task(consumer.consume())
    await wait_until(lambda: len(queue) == 0 or task.done())
    consumer.stop()
    await task


def put(queue: MemoryQueue, *events: tuple[int, str]) -> None:
    for id, text in events:
        queue.put(json.dumps({"id": id, "text": text}).encode(), id=f"m{id}{text}")


@pytest.mark.mission("D6")
async def test_a_batch_is_one_call_and_nothing_is_claimed(once: Once | AsyncOnce) -> None:
    queue, house = MemoryQueue(), Warehouse()
    put(queue, *((number, "a") for number in range(1_000)))
    await consumed(queue, Batch(once, house.merge, name="rows", largest=400))
    assert house.sizes == [400, 400, 200]
    assert len(house.rows) == 1_000
    assert once.counts == {}


async def test_each_delivery_has_its_own_outcome(once: Once | AsyncOnce) -> None:
    queue, house = MemoryQueue(), Warehouse()
    put(queue, (1, "a"), (2, "a"), (1, "a"), (1, "b"), (3, "a"))
    queue.put(b"no JSON", id="broken")
    await consumed(queue, Batch(once, house.merge, name="rows"))
    assert house.rows == {1: "a", 2: "a", 3: "a"}
    assert sorted(await parked_records(once.store)) == [("broken", "DecodeError"), ("m1b", "PayloadMismatch")]


async def test_what_a_batch_raises_is_in_the_log_once(once: Once | AsyncOnce, caplog: pytest.LogCaptureFixture) -> None:
    queue, house = MemoryQueue(), Warehouse()
    put(queue, (1, "a"), (2, "a"), (3, "a"))
    troubles = [ValueError("no such column")]

    def merge(events: Sequence[dict[str, Any]]) -> list[Any]:
        if troubles:
            raise troubles.pop()
        return house.merge(events)

    await consumed(queue, Batch(once, merge, name="rows"))
    assert len(house.rows) == 3
    [record] = [one for one in caplog.records if one.name == "onceward.raised"]
    assert "the work raised ValueError in" in record.getMessage()


async def test_a_contradicting_message_goes_to_the_dead_letters_if_there_are_any() -> None:
    queue, house, once = MemoryQueue(dead_letters=True), Warehouse(), Once(MemoryStore())
    put(queue, (1, "a"), (1, "b"))
    await consumed(queue, Batch(once, house.merge, name="rows"))
    [(message, reason)] = queue.dead
    assert (message.id, reason.partition(":")[0]) == ("m1b", "PayloadMismatch")
    assert await parked_records(once.store) == []


@pytest.mark.mission("D5")
async def test_if_the_call_raises_nothing_is_acknowledged_and_all_of_it_comes_again(once: Once | AsyncOnce) -> None:
    queue, house = MemoryQueue(), Warehouse()
    house.away = 2
    put(queue, (1, "a"), (2, "a"))
    await consumed(queue, Batch(once, house.merge, name="rows"))
    assert house.rows == {1: "a", 2: "a"}
    assert len(house.sizes) >= 3
    assert once.counts["delivered_later"] == 4


async def test_an_exception_in_the_place_of_an_outcome_concerns_this_one_alone() -> None:
    queue, once = MemoryQueue(), Once(MemoryStore())
    seen: list[int] = []

    def handle(events: Sequence[dict[str, Any]]) -> list[Any]:
        seen.extend(event["id"] for event in events)
        return [
            ValueError("not now") if event["id"] == 1 and seen.count(1) == 1 else Replayed(key="") for event in events
        ]

    put(queue, (1, "a"), (2, "a"))
    await consumed(queue, Batch(once, handle, name="rows"))
    assert sorted(seen) == [1, 1, 2]


async def test_a_function_that_forgets_an_event_acknowledges_none() -> None:
    queue, once = MemoryQueue(), Once(MemoryStore())
    put(queue, (1, "a"), (2, "a"))
    calls: list[int] = []

    def forgetful(events: Sequence[Any]) -> list[Any]:
        calls.append(len(events))
        return [None] * (len(events) - (len(calls) == 1))

    await consumed(queue, Batch(once, forgetful, name="rows"))
    assert calls[0] == 2
    assert once.counts["delivered_later"] == 2, "one outcome for two events applies to neither"


async def test_batches_go_one_after_the_other_and_the_loop_stays_free() -> None:
    queue, once = MemoryQueue(), Once(MemoryStore())
    inside = threading.Semaphore()
    overlapped: list[bool] = []
    threads: set[int] = set()

    def slow(events: Sequence[Any]) -> list[None]:
        overlapped.append(not inside.acquire(blocking=False))
        threads.add(threading.get_ident())
        try:
            return [None for _ in events]
        finally:
            inside.release()

    put(queue, *((number, "a") for number in range(100)))
    await consumed(queue, Batch(once, slow, name="rows", largest=10))
    assert not any(overlapped)
    assert threading.get_ident() not in threads


def test_what_cannot_work_is_refused_while_declaring() -> None:
    once = Once(MemoryStore())

    async def coroutine(_events: Sequence[Any]) -> list[None]:
        return []

    with pytest.raises(ConfigurationError, match="async"):
        Batch(once, coroutine, name="rows")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ConfigurationError, match="largest=0"):
        Batch(once, lambda _: [], name="rows", largest=0)
    assert Consumer(Batch(once, lambda _: [], name="rows", largest=50), MemoryQueue()).concurrency == 100
