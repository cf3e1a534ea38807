"""Group commit on an event loop where a call has its price: a second flight is for a crowd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Answer, AnyRequest
from onceward.runtime.async_batcher import AsyncBatcher, LoopQueue
from tests.moved_time import TOO_LONG
from tests.unit.async_batcher_calls import all_of, ask, start
from tests.unit.batcher_calls import LoopSend, answer_to, request

CROWD = 16


@asynccontextmanager
async def crowd_under_way(
    holds: int, first: Sequence[str] = ("first",)
) -> AsyncIterator[tuple[AsyncBatcher, LoopSend]]:
    """A lane of two flights, the first of which is in the air."""
    send = LoopSend(holds)
    batcher = AsyncBatcher(send, 2, CROWD)
    tasks = await start(batcher, *(request(word) for word in first))
    await send.reached()
    yield batcher, send
    for number in range(holds):
        send.go(number)
    assert await all_of(tasks) == [answer_to(request(word)) for word in first]


async def test_a_crowd_flies_in_two_halves_and_what_is_started_together_goes_together() -> None:
    send = LoopSend(2)
    batcher = AsyncBatcher(send, 2, CROWD)
    requests = [request(number) for number in range(100)]
    tasks = await start(batcher, *requests)
    await send.reached()
    await send.reached()
    assert send.sizes() == [50, 50]
    send.go(0)
    send.go(1)
    assert await all_of(tasks) == [answer_to(one) for one in requests]


async def test_a_few_wait_for_the_flight_in_the_air_and_a_crowd_does_not() -> None:
    async with crowd_under_way(2) as (batcher, send):
        few = await start(batcher, *(request(number) for number in range(CROWD - 1)))
        await asyncio.sleep(0)
        assert send.sizes() == [1]
        one_more = await start(batcher, request("one more"))
        await send.reached()
        assert send.sizes() == [1, CROWD]
        send.go(1)
        assert len(await all_of(few + one_more)) == CROWD


async def test_a_few_fly_as_soon_as_the_flight_in_the_air_has_landed() -> None:
    async with crowd_under_way(1) as (batcher, send):
        few = await start(batcher, *(request(word) for word in "abc"))
        send.go(0)
        assert await all_of(few) == [answer_to(request(word)) for word in "abc"]
    assert send.calls == [["first"], ["a", "b", "c"]]


async def test_a_key_is_never_aboard_of_two_flights() -> None:
    async with crowd_under_way(2) as (batcher, send):
        others = await start(batcher, request("first", b"again"), *(request(number) for number in range(CROWD)))
        await send.reached()
        assert "first" not in send.calls[1]
        send.go(1)
        await all_of(others[1:])
        assert not others[0].done(), "it waits until its key has landed"
        send.go(0)
        assert await all_of(others[:1]) == [answer_to(request("first"))]
    assert send.calls[2] == ["first"]


async def test_a_crowd_that_waits_for_keys_in_the_air_takes_off_when_they_land() -> None:
    words = [str(number) for number in range(CROWD)]
    async with crowd_under_way(1, words) as (batcher, send):
        others = await start(batcher, *(request(word, b"again") for word in words))
        await asyncio.sleep(0)
        assert send.sizes() == [CROWD], "nothing that could fly beside it"
        send.go(0)
        assert await all_of(others) == [answer_to(request(word)) for word in words]
    assert send.calls == [words, words]


async def test_a_crowd_that_waits_for_one_key_does_not_keep_the_loop_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    departures: list[LoopQueue] = []
    depart = LoopQueue._flush

    def noted(runway: LoopQueue) -> None:
        departures.append(runway)
        depart(runway)

    monkeypatch.setattr(LoopQueue, "_flush", noted)
    async with crowd_under_way(1) as (batcher, send):
        others = await start(batcher, *(request("first", bytes([number])) for number in range(2 * CROWD)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(departures) <= 3, "the one in the air, and whoever looked whether others could fly"
        send.go(0)
        assert await all_of(others) == [answer_to(request("first"))] * 2 * CROWD
    assert send.sizes() == [1] * (2 * CROWD + 1)


async def test_the_second_of_a_key_goes_with_the_next_flight_also_in_the_same_plane() -> None:
    async with crowd_under_way(1) as (batcher, send):
        others = await start(batcher, request("first", b"again"), request("other"))
        send.go(0)
        await all_of(others)
    assert send.calls == [["first"], ["first", "other"]]


async def test_whoever_waits_for_a_crowd_that_never_comes_has_a_deadline() -> None:
    async with crowd_under_way(1) as (batcher, send):
        [hurried] = await start(batcher, request("hurried"), timeout=0.01)
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            await asyncio.wait_for(hurried, TOO_LONG)
    assert send.calls == [["first"]]


@pytest.mark.fault("F28")
async def test_a_flight_that_fails_beside_another_is_repeated_one_by_one_and_the_other_flies_on() -> None:
    async with crowd_under_way(1) as (batcher, send):
        send.fails = lambda requests: any(getattr(one, "key", "") == "bad" for one in requests)
        others = await start(batcher, request("bad"), *(request(number) for number in range(CROWD)))
        assert len(await all_of(others[1:])) == CROWD
        with pytest.raises(StoreUnavailable, match="bad"):
            await others[0]
        assert send.sizes() == [1, CROWD + 1, *[1] * (CROWD + 1)]


async def test_nobody_starves_in_a_crowd_and_two_flights_are_enough() -> None:
    in_the_air: list[int] = []
    most = 0

    async def send(requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        nonlocal most
        in_the_air.append(len(requests))
        most = max(most, len(in_the_air))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        in_the_air.remove(len(requests))
        return [answer_to(one) for one in requests]

    batcher = AsyncBatcher(send, 2, CROWD)

    async def worker(number: int) -> None:
        for turn in range(20):
            word = f"{number % 50}/{turn}"
            assert await ask(batcher, request(word, str(number).encode())) == answer_to(request(word))

    await asyncio.wait_for(asyncio.gather(*(worker(number) for number in range(100))), TOO_LONG)
    assert most == 2
