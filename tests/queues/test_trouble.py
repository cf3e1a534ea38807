"""Errors that are not the message's fault: it is redelivered, and its content is not logged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from onceward import AsyncOnce, Once
from onceward.administration.explain import sentences
from onceward.engine.events import Event
from onceward.errors import ClaimError
from onceward.latest import StateEvent
from onceward.protocol.ports import Filter
from onceward.protocol.requests import Answer, ClaimRequest
from onceward.queues import Consumer, Delivery, MemoryQueue
from onceward.stores import MemoryStore
from onceward.testing.queues.base import HandlerLog, parked_records, recording_handler, wait_until
from tests.queues.consuming import consumed

NEVER = 3600.0
"""An ack deadline as brokers have it that keep a delivery as long as we are connected."""


@pytest.mark.fault("F72")
@pytest.mark.parametrize("blocking", [False, True])
async def test_work_that_ends_in_a_cancellation_of_its_own_comes_again(blocking: bool) -> None:
    """For example, a task that it awaited was cancelled. Otherwise the delivery would stay in flight forever."""
    once: Any = Once(MemoryStore()) if blocking else AsyncOnce(MemoryStore())
    queue, tried = MemoryQueue(ack_deadline=NEVER), []

    def attempt() -> None:
        tried.append(1)
        if len(tried) == 1:
            raise asyncio.CancelledError

    async def attempt_async(event: dict[str, Any]) -> None:
        attempt()

    def attempt_blocking(event: dict[str, Any]) -> None:
        attempt()

    book = once(key="{event[id]}", name="book")(attempt_blocking if blocking else attempt_async)
    queue.put(b'{"id": "a"}')
    queue.put(b'{"id": "a"}')  # one after another: the other code path of a batch
    await consumed(queue, book)
    assert len(tried) == 2


@pytest.mark.mission("D5")
@pytest.mark.parametrize("error", [ClaimError("no thread can be started"), RuntimeError("a bug")])
async def test_an_error_while_claiming_does_not_dead_letter_the_message(error: Exception) -> None:
    store, seen = Troubled(error), HandlerLog()
    once, queue = AsyncOnce(store), MemoryQueue(dead_letters=True)
    queue.put(b'{"id": "a"}')
    await consumed(queue, recording_handler(once, seen))
    assert seen.effects == ["a"]
    assert queue.dead == []


class Troubled(MemoryStore):
    """A store that raises an unexpected error once."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._troubles = [error]

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        if self._troubles:
            raise self._troubles.pop()
        return await super().claim(requests, timeout=timeout)


async def test_a_store_that_cannot_keep_states_costs_no_message() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue(dead_letters=True)
    trucks = once.state("trucks", max_clock_skew=None)
    once.store.apply_events = refused  # type: ignore[attr-defined]
    queue.put(b"2026-03-01T12:00:00Z")
    consumer = Consumer(trucks, queue, decode=lambda message: StateEvent(7, message.decode(), "Berlin"))
    task = asyncio.create_task(consumer.consume())
    await wait_until(lambda: once.counts.get("delivered_later", 0) > 0)
    consumer.stop()
    await task
    assert (len(queue), queue.dead) == (1, [])


async def refused(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a bug")


@pytest.mark.fault("F72")
async def test_two_unreadable_messages_under_one_id_have_two_records() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()
    for body in (b"no JSON", b"no JSON either", b"no JSON"):
        queue.put(body, id="m1")
    await consumed(queue, recording_handler(once, HandlerLog()))
    assert await parked_records(once.store) == [("m1", "DecodeError")] * 2


async def test_explain_describes_the_record_of_a_dead_lettered_message() -> None:
    """The record is not of work: its outcome is not unknown, and resolving it runs nothing."""
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()
    queue.put(b"no JSON", id="m1")
    await consumed(queue, recording_handler(once, HandlerLog()))
    page = await once.store.scan(Filter(), cursor=None, limit=10, timeout=5)
    [record] = page.records
    story = " ".join(sentences(record, page.now))
    assert "message m1 of" in story
    assert "DecodeError" in story
    assert "acknowledged, because there is no dead letter queue" in story
    assert "resolving it runs nothing" in story
    assert "it is unknown whether" not in story


async def test_explain_says_that_no_broker_redelivers_parked_work() -> None:
    once, queue = AsyncOnce(MemoryStore()), MemoryQueue()

    @once(key="{event[id]}", name="book", after_crash="park")
    async def book(event: dict[str, Any]) -> None:
        raise TimeoutError("no answer")

    queue.put(b'{"id": "a"}', id="m1")
    await consumed(queue, book)
    page = await once.store.scan(Filter(), cursor=None, limit=10, timeout=5)
    [record] = page.records
    story = " ".join(sentences(record, page.now))
    assert "it is unknown whether attempt 1" in story
    assert "It was message m1 of" in story
    assert "it runs when the message is sent again, or by a recovery worker" in story


async def test_what_a_body_says_is_not_in_the_events() -> None:
    once, queue, events = AsyncOnce(MemoryStore()), MemoryQueue(dead_letters=True), list[Event]()
    once.subscribe(events.append)

    def read(message: Any) -> Any:
        raise ValueError(f"cannot read {message.body!r}")

    queue.put(b"4111 1111 1111 1111")
    await consumed(queue, recording_handler(once, HandlerLog()), decode=read)
    assert "4111" in queue.dead[0][1]  # the body is in the record as well
    assert events
    assert not [event for event in events if "4111" in repr(event)]


async def test_a_broker_that_cannot_delay_is_not_polled_in_a_tight_loop() -> None:
    """The broker redelivers immediately what it could not delay."""
    once, queue = AsyncOnce(MemoryStore()), NeverLater(ack_deadline=0.001)

    @once(key="{event[id]}", name="book")
    async def book(event: dict[str, Any]) -> None:
        raise ValueError("not now")

    queue.put(b'{"id": "a"}')
    consumer = Resting(book, queue)
    task = asyncio.create_task(consumer.consume())
    await wait_until(lambda: once.counts.get("queue_failed", 0) >= 3)
    consumer.stop()
    await task
    assert consumer.rests >= 2


class NeverLater(MemoryQueue):
    async def nack(self, delivery: Delivery, delay: float) -> None:
        raise ConnectionError("the channel was closed")


class Resting(Consumer):
    rests = 0

    async def _sleep(self, seconds: float) -> None:
        self.rests += 1
