"""Group commit on an event loop with expensive calls: only a minimum batch justifies a second one in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Answer, AnyRequest
from onceward.runtime import async_batcher
from onceward.runtime.async_batcher import MIN_BATCH, AsyncBatcher
from onceward.runtime.next_batch import next_batch
from onceward.runtime.pending_request import PendingRequest
from tests.moved_time import TOO_LONG
from tests.unit.async_batcher_calls import all_of, ask, start
from tests.unit.batcher_calls import LoopSend, answer_to, request


@asynccontextmanager
async def batch_in_flight(
    holds: int, first: Sequence[str] = ("first",)
) -> AsyncIterator[tuple[AsyncBatcher, LoopSend]]:
    """Yield a batcher that allows two batches in flight and has sent the first."""
    send = LoopSend(holds)
    batcher = AsyncBatcher(send, 2)
    tasks = await start(batcher, *(request(word) for word in first))
    await send.reached()
    yield batcher, send
    for number in range(holds):
        send.go(number)
    assert await all_of(tasks) == [answer_to(request(word)) for word in first]


async def test_a_large_batch_is_split_in_two_and_requests_started_together_are_sent_together() -> None:
    send = LoopSend(2)
    batcher = AsyncBatcher(send, 2)
    requests = [request(number) for number in range(100)]
    tasks = await start(batcher, *requests)
    await send.reached()
    await send.reached()
    assert send.sizes() == [50, 50]
    send.go(0)
    send.go(1)
    assert await all_of(tasks) == [answer_to(one) for one in requests]


async def test_fewer_requests_than_the_minimum_batch_wait_for_the_batch_in_flight() -> None:
    async with batch_in_flight(2) as (batcher, send):
        few = await start(batcher, *(request(number) for number in range(MIN_BATCH - 1)))
        await asyncio.sleep(0)
        assert send.sizes() == [1]
        one_more = await start(batcher, request("one more"))
        await send.reached()
        assert send.sizes() == [1, MIN_BATCH]
        send.go(1)
        assert len(await all_of(few + one_more)) == MIN_BATCH


async def test_a_small_batch_is_sent_as_soon_as_the_batch_in_flight_has_returned() -> None:
    async with batch_in_flight(1) as (batcher, send):
        few = await start(batcher, *(request(word) for word in "abc"))
        send.go(0)
        assert await all_of(few) == [answer_to(request(word)) for word in "abc"]
    assert send.calls == [["first"], ["a", "b", "c"]]


async def test_a_key_is_never_in_two_batches_in_flight() -> None:
    async with batch_in_flight(2) as (batcher, send):
        others = await start(batcher, request("first", b"again"), *(request(number) for number in range(MIN_BATCH)))
        await send.reached()
        assert "first" not in send.calls[1]
        send.go(1)
        await all_of(others[1:])
        assert not others[0].done(), "it waits until the request for its key has returned"
        send.go(0)
        assert await all_of(others[:1]) == [answer_to(request("first"))]
    assert send.calls[2] == ["first"]


async def test_requests_that_wait_for_keys_in_flight_are_sent_when_these_return() -> None:
    words = [str(number) for number in range(MIN_BATCH)]
    async with batch_in_flight(1, words) as (batcher, send):
        others = await start(batcher, *(request(word, b"again") for word in words))
        await asyncio.sleep(0)
        assert send.sizes() == [MIN_BATCH], "nothing that could be sent concurrently"
        send.go(0)
        assert await all_of(others) == [answer_to(request(word)) for word in words]
    assert send.calls == [words, words]


async def test_many_requests_that_wait_for_one_key_do_not_keep_the_loop_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    takes: list[int] = []

    def counted(waiting: list[PendingRequest], *choices: Any) -> Any:
        takes.append(len(waiting))
        return next_batch(waiting, *choices)

    monkeypatch.setattr(async_batcher, "next_batch", counted)
    async with batch_in_flight(1) as (batcher, send):
        others = await start(batcher, *(request("first", bytes([number])) for number in range(2 * MIN_BATCH)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(takes) <= 3, "the one in flight, and the checks whether others can be sent"
        send.go(0)
        assert await all_of(others) == [answer_to(request("first"))] * 2 * MIN_BATCH
    assert send.sizes() == [1] * (2 * MIN_BATCH + 1)


async def test_the_second_request_for_a_key_is_sent_in_the_next_batch() -> None:
    async with batch_in_flight(1) as (batcher, send):
        others = await start(batcher, request("first", b"again"), request("other"))
        send.go(0)
        await all_of(others)
    assert send.calls == [["first"], ["first", "other"]]


async def test_a_request_that_waits_for_a_minimum_batch_has_a_deadline() -> None:
    async with batch_in_flight(1) as (batcher, send):
        [hurried] = await start(batcher, request("hurried"), timeout=0.01)
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            await asyncio.wait_for(hurried, TOO_LONG)
    assert send.calls == [["first"]]


@pytest.mark.fault("F28")
async def test_a_failed_batch_is_repeated_one_by_one_and_the_other_batch_continues() -> None:
    async with batch_in_flight(1) as (batcher, send):
        send.fails = lambda requests: any(getattr(one, "key", "") == "bad" for one in requests)
        others = await start(batcher, request("bad"), *(request(number) for number in range(MIN_BATCH - 1)))
        assert len(await all_of(others[1:])) == MIN_BATCH - 1
        with pytest.raises(StoreUnavailable, match="bad"):
            await others[0]
        assert send.sizes() == [1, MIN_BATCH, *[1] * MIN_BATCH]


async def test_no_caller_starves_among_many_and_two_batches_in_flight_are_enough() -> None:
    in_flight: list[int] = []
    most = 0

    async def send(requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        nonlocal most
        in_flight.append(len(requests))
        most = max(most, len(in_flight))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        in_flight.remove(len(requests))
        return [answer_to(one) for one in requests]

    batcher = AsyncBatcher(send, 2)

    async def worker(number: int) -> None:
        for turn in range(20):
            word = f"{number % 50}/{turn}"
            assert await ask(batcher, request(word, str(number).encode())) == answer_to(request(word))

    await asyncio.wait_for(asyncio.gather(*(worker(number) for number in range(100))), TOO_LONG)
    assert most == 2
