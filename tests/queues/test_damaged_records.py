"""A damaged record fails only the message or item of its own key, not the others that are claimed in the same call."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Failed, Once, StoreUnavailable
from onceward.errors import RecordBroken
from onceward.protocol.requests import Answer, ClaimRequest
from onceward.queues import Consumer, Delivery, MemoryQueue
from onceward.stores.memory import MemoryStore
from onceward.testing.queues.base import wait_until

HEALTHY = [f"k{n}" for n in range(9)]
ORDERS = [*HEALTHY[:4], "bad", *HEALTHY[4:]]


def damage(path: Path | str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE onceward_records SET attempt = NULL, arguments = '{' WHERE key = 'bad'")


class CountingQueue(MemoryQueue):
    polls = 0

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        self.polls += 1
        return await super().receive(max_messages, wait)


@pytest.fixture(params=["async handler", "blocking handler"])
def handler_is_async(request: pytest.FixtureRequest) -> bool:
    return str(request.param) == "async handler"


@pytest.mark.finding("N24")
async def test_a_damaged_record_delays_only_its_own_message(tmp_path: Path, handler_is_async: bool) -> None:
    url, queue, done = f"sqlite:///{tmp_path / 'o.db'}", CountingQueue(), list[str]()
    once: AsyncOnce | Once = AsyncOnce(url) if handler_is_async else Once(url)
    handler: Any

    if isinstance(once, AsyncOnce):

        @once(key="{event[order]}", name="book")
        async def book(event: dict[str, str]) -> None:
            done.append(event["order"])

        handler = book
        await book({"order": "bad"})
    else:

        @once(key="{event[order]}", name="book")
        def book_now(event: dict[str, str]) -> None:
            done.append(event["order"])

        handler = book_now
        await asyncio.to_thread(book_now, {"order": "bad"})
    done.clear()
    damage(tmp_path / "o.db")
    for order in ORDERS:
        queue.put(json.dumps({"order": order}).encode())
    events: list[tuple[str, str, str]] = []
    once.subscribe(lambda event: events.append((event.name, event.key, event.reason)))
    consumer = Consumer(handler, queue, concurrency=10, first_delay="1h", longest_delay="1h")
    consumer.poll_timeout = 0.02
    task = asyncio.create_task(consumer.consume())
    await wait_until(lambda: any(name == "delivered_later" for name, *_ in events))
    polls = queue.polls
    await wait_until(lambda: queue.polls > polls + 2)  # without waiting for the delay of the damaged message
    consumer.stop()
    await task
    assert sorted(done) == HEALTHY, "each of the others ran at once, and once"
    later = {reason.partition(":")[0] for name, _, reason in events if name == "delivered_later"}
    assert later == {"damaged record"}
    assert {key for name, key, _ in events if name == "claim_failed"} == {"bad"}, "the log blames no healthy key"
    assert len(queue) == 1


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """Return the URL of a store whose record of the order `bad` is damaged."""
    url = f"sqlite:///{tmp_path / 'o.db'}"
    with Once(url) as once:
        once.map(shout, ["bad"], key="{order}", name="book")
    damage(tmp_path / "o.db")
    return url


def shout(order: str) -> str:
    return order.upper()


@pytest.mark.finding("N24")
@pytest.mark.parametrize("items", [ORDERS, ["bad"]], ids=["batch", "alone"])
@pytest.mark.parametrize("settings", [{}, {"on_store_down": "run"}, {"max_attempts": 3}], ids=str)
def test_a_damaged_record_fails_only_its_own_item_of_map_and_imap(
    damaged: str, items: list[str], settings: dict[str, Any]
) -> None:
    done: list[str] = []

    def book(order: str) -> str:
        done.append(order)
        return order

    with Once(damaged) as once:
        by_map = once.map(book, items, key="{order}", name="book", **settings)
        by_imap = [one.outcome for one in once.imap(book, items, key="{order}", name="book", **settings)]
    assert done == [order for order in items if order != "bad"]
    for outcomes in (by_map, by_imap):
        for order, outcome in zip(items, outcomes, strict=True):
            if order == "bad":
                assert isinstance(outcome, Failed)
                assert (outcome.error_type, outcome.key) == ("RecordBroken", "bad")
            else:
                assert outcome.unwrap() == order


@pytest.mark.finding("N24")
def test_in_observe_mode_all_items_run_and_the_damaged_one_is_reported(damaged: str) -> None:
    observing = Once(damaged, mode="observe")
    queue, events, done = MemoryQueue(), list[tuple[str, str]](), list[str]()
    observing.subscribe(lambda event: events.append((event.name, event.key)))

    @observing(key="{event}", name="book")
    def book(event: str) -> None:
        done.append(event)

    for order in ORDERS:
        queue.put(order.encode())

    async def consume() -> None:
        consumer = Consumer(book, queue)
        consumer.poll_timeout = 0.02
        task = asyncio.create_task(consumer.consume())
        await wait_until(lambda: len(queue) == 0)
        consumer.stop()
        await task

    asyncio.run(consume())
    assert sorted(done) == sorted(ORDERS)
    assert [key for name, key in events if name == "unprotected"] == ["bad"]
    assert [key for name, key in events if name == "would_skip"] == []


class GrantsThenFails(MemoryStore):
    """Grants the claims of a batch, but fails it because of one record. Then it stops answering after `answers`."""

    def __init__(self, answers: int = 1_000) -> None:
        super().__init__()
        self.answers = answers
        self.single = 0

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        healthy = [one for one in requests if one.key != "bad"]
        if len(requests) == 1:
            self.single += 1
            if self.single > self.answers:
                raise StoreUnavailable("down")
        granted = await super().claim(healthy, timeout=timeout) if healthy else []
        if len(healthy) < len(requests):
            raise RecordBroken("this record has invalid content")
        return granted


@pytest.mark.finding("N24")
def test_claims_that_the_failed_batch_was_granted_are_recognised() -> None:
    """As with Redis, whose requests are applied one by one: the repeated claim has the same nonce."""
    with Once(GrantsThenFails()) as once:
        outcomes = once.map(shout, ORDERS, key="{order}", name="book")
        assert [outcome.kind for outcome in outcomes] == ["failed" if one == "bad" else "executed" for one in ORDERS]


@pytest.mark.finding("N24")
def test_if_the_store_stops_answering_the_remaining_items_get_its_error_quickly() -> None:
    store = GrantsThenFails(answers=6)
    with Once(store) as once:
        outcomes = once.map(shout, ORDERS, key="{order}", name="book")
        kinds = [getattr(outcome, "error_type", "") or outcome.kind for outcome in outcomes]
        assert kinds == ["executed"] * 4 + ["RecordBroken", "executed"] + ["StoreUnavailable"] * 4
        assert store.single == 6 + 3, "one claim, and its repetitions"
