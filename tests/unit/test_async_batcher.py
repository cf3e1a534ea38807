"""Group commit among the tasks of an event loop (PROTOCOL 11): gates in the store decide which call waits."""

from __future__ import annotations

import asyncio
import gc
from asyncio import Task
from collections.abc import Sequence
from typing import Any

import pytest

from onceward.errors import StoreBroken, StoreUnavailable
from onceward.protocol.requests import Answer, AnyRequest
from onceward.runtime.async_batcher import AsyncBatcher, LoopQueue
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.async_batcher_calls import all_of, ask, start, under_way
from tests.unit.batcher_calls import LoopSend, Noted, answer_to, large, request, until


def queues() -> int:
    gc.collect()
    return sum(type(one) is LoopQueue for one in gc.get_objects())  # isinstance would evaluate lazy objects


async def test_what_is_started_together_goes_together() -> None:
    send = LoopSend()
    batcher = AsyncBatcher(send)
    assert await all_of(await start(batcher, *(request(word) for word in "abc"))) == [
        answer_to(request(word)) for word in "abc"
    ]
    assert send.calls == [["a", "b", "c"]]


async def test_what_arrives_while_a_call_is_under_way_goes_together_in_the_next() -> None:
    words = "abcdefghij"
    async with under_way() as (batcher, send):
        others = await start(batcher, *(request(word) for word in words))
        assert send.calls == [["first"]]
        send.go()
        assert await all_of(others) == [answer_to(request(word)) for word in words]
    assert send.calls == [["first"], list(words)]


async def test_batches_have_their_limits_and_one_request_a_key() -> None:
    async with under_way() as (batcher, send):
        others = await start(batcher, *(request(number) for number in range(300)))
        others += await start(batcher, *(large(number, 400_000) for number in range(300, 303)), request(0, b"again"))
        send.go()
        await all_of(others)
    assert send.sizes() == [1, 256, 44 + 2, 2]
    assert send.calls[-1][-1] == "0"
    assert [getattr(one, "nonce", b"") for one in send.requests[-1]] == [b"n", b"again"]


async def test_one_that_fails_fails_alone_and_the_others_are_repeated_with_their_nonce() -> None:
    words = ["a", "bad", "c", "d"]
    async with under_way() as (batcher, send):
        send.fails = lambda requests: any(getattr(one, "key", "") == "bad" for one in requests)
        asked = [request(word, word.encode()) for word in words]
        others = await start(batcher, *asked)
        send.go()
        for word, one in zip(words, others, strict=True):
            if word == "bad":
                with pytest.raises(StoreUnavailable, match="bad"):
                    await one
            else:
                assert await one == answer_to(request(word))
    assert send.calls == [["first"], words, *([word] for word in words)]
    assert [call[0] for call in send.requests[2:]] == asked


@pytest.mark.fault("F28")
async def test_a_cancelled_task_that_waits_is_not_sent_and_others_are_not_affected() -> None:
    async with under_way() as (batcher, send):
        others = await start(batcher, *(request(word) for word in "abc"))
        others[1].cancel()
        send.go()
        with pytest.raises(asyncio.CancelledError):
            await others[1]
        assert await all_of([others[0], others[2]]) == [answer_to(request(word)) for word in "ac"]
    assert send.calls == [["first"], ["a", "c"]]


@pytest.mark.fault("F28")
async def test_a_cancelled_task_whose_request_is_in_flight_does_not_affect_others() -> None:
    async with under_way(2) as (batcher, send):
        others = await start(batcher, *(request(word) for word in "abc"))
        send.go(0)
        await send.reached()
        others[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await others[0]
        send.go(1)
        assert await all_of(others[1:]) == [answer_to(request(word)) for word in "bc"]
    assert send.calls == [["first"], ["a", "b", "c"]]


@pytest.mark.fault("F28")
async def test_no_task_waits_forever_after_all_tasks_are_cancelled() -> None:
    """At the end of a program, tasks still settle while the task that the store waits for is cancelled."""
    async with under_way(2) as (batcher, send):
        others = await start(batcher, *(request(word) for word in "ab"))
        send.go(0)
        await send.reached()
        [late] = await start(batcher, request("late"))
        of_the_store = [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "wait"]
        for task in of_the_store:
            task.cancel()
        [last] = await start(batcher, request("last"))
        assert await all_of([*others, late, last]) == [answer_to(request(word)) for word in ("a", "b", "late", "last")]
    assert len(of_the_store) == 1
    assert send.calls == [["first"], ["a", "b"], ["a", "b", "late", "last"]]


async def test_each_call_has_a_deadline_of_its_own_while_it_waits_for_its_turn() -> None:
    async with under_way() as (batcher, send):
        [patient] = await start(batcher, request("patient"))
        [hurried] = await start(batcher, request("hurried"), timeout=0.01)
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            await asyncio.wait_for(hurried, TOO_LONG)
        assert not patient.done(), "the batch is still in flight"
        send.go()
        assert await patient == answer_to(request("patient"))
    assert send.calls == [["first"], ["patient"]]


async def test_the_deadlines_of_waiting_callers_expire_one_after_the_other() -> None:
    async with under_way() as (batcher, send):
        [later] = await start(batcher, request("later"), timeout=0.05)
        [sooner] = await start(batcher, request("sooner"), timeout=0.01)
        [patient] = await start(batcher, request("patient"))
        for one in (sooner, later):
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(one, TOO_LONG)
        assert not patient.done()
        send.go()
        assert await patient == answer_to(request("patient"))
    assert send.calls == [["first"], ["patient"]]


async def test_each_call_has_a_deadline_of_its_own_while_others_are_repeated() -> None:
    """The call for several failed. While the first is repeated, and is slow, the second one's time runs out."""
    async with under_way() as (batcher, send):
        gate = asyncio.Event()

        async def slow(requests: Any, timeout: float) -> list[Answer]:
            if len(requests) > 1:
                raise StoreUnavailable("not together")
            await gate.wait()
            return await send(requests, timeout)

        slow_batcher = AsyncBatcher(slow)
        patient = asyncio.ensure_future(ask(slow_batcher, request("patient")))
        [hurried] = await start(slow_batcher, request("hurried"), timeout=0.05)
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            await asyncio.wait_for(hurried, TOO_LONG)
        assert not patient.done()
        gate.set()
        assert await patient == answer_to(request("patient"))
        assert batcher is not slow_batcher


async def test_the_deadlines_of_repeated_requests_hold_also_after_the_alarm_has_fired() -> None:
    """The alarm was set for an earlier request, and fired while these were in flight together."""
    gate, fails = asyncio.Event(), asyncio.Event()

    async def slow(requests: Any, _timeout: float) -> list[Answer]:
        if len(requests) > 1:
            await fails.wait()
            raise StoreUnavailable("not together")
        await gate.wait()
        return [answer_to(one) for one in requests]

    batcher = AsyncBatcher(slow)
    brief = asyncio.ensure_future(ask(batcher, request("brief"), 0.02))
    patient = asyncio.ensure_future(ask(batcher, request("patient")))
    [hurried] = await start(batcher, request("hurried"), timeout=0.2)
    await asyncio.sleep(0.1)
    brief.cancel()
    fails.set()
    with pytest.raises(StoreUnavailable, match="busy for too long"):
        await asyncio.wait_for(hurried, TOO_LONG)
    assert not patient.done()
    gate.set()
    assert await patient == answer_to(request("patient"))


async def test_the_shortest_timeout_in_a_batch_limits_the_call() -> None:
    async with under_way() as (batcher, send):
        others = await start(batcher, request("patient")) + await start(batcher, request("hurried"), timeout=5)
        send.go()
        await all_of(others)
    assert send.calls[1] == ["patient", "hurried"]
    assert 0 < send.timeouts[1] <= 5


async def test_a_call_without_any_time_left_raises() -> None:
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(ask(AsyncBatcher(LoopSend()), request("a"), timeout=0), TOO_LONG)


async def test_no_caller_starves() -> None:
    send = LoopSend()
    batcher = AsyncBatcher(send)

    async def worker(number: int) -> None:
        for turn in range(20):
            word = f"{number}/{turn}"
            assert await ask(batcher, request(word)) == answer_to(request(word))

    await asyncio.wait_for(asyncio.gather(*(worker(number) for number in range(300))), TOO_LONG)
    assert sorted(word for call in send.calls for word in call) == sorted(
        f"{number}/{turn}" for number in range(300) for turn in range(20)
    )
    assert max(send.sizes()) <= 256
    assert len(send.calls) <= 2 * 20, "300 tasks need two calls a round"


async def test_callers_do_not_wait_if_the_store_returns_too_few_answers() -> None:
    send = LoopSend()
    send.answers = lambda requests: []  # type: ignore[method-assign]
    for one in await start(AsyncBatcher(send), request("a"), request("b")):
        with pytest.raises(StoreBroken, match="0 answers"):
            await asyncio.wait_for(one, TOO_LONG)
    assert send.sizes() == [2, 1, 1]


async def test_a_store_that_never_waits_returns_immediately() -> None:
    send = LoopSend()
    batcher = AsyncBatcher(send)
    for word in "abc":
        assert await asyncio.wait_for(ask(batcher, request(word)), TOO_LONG) == answer_to(request(word))
    assert send.calls == [["a"], ["b"], ["c"]]


async def test_a_store_that_only_yields_is_resumed() -> None:
    turns: list[int] = []

    async def send(requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        for turn in range(3):
            turns.append(turn)
            await asyncio.sleep(0)
        return [answer_to(one) for one in requests]

    assert await asyncio.wait_for(ask(AsyncBatcher(send), request("a")), TOO_LONG) == answer_to(request("a"))
    assert turns == [0, 1, 2]


def test_no_caller_waits_after_an_interrupt_inside_the_store() -> None:
    """After Ctrl-C, requests in flight are sent again if the loop runs again, as in `asyncio.run`."""
    strikes = [True]

    async def send(requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        if strikes and strikes.pop():
            raise KeyboardInterrupt
        return [answer_to(one) for one in requests]

    batcher = AsyncBatcher(send)
    loop = asyncio.new_event_loop()
    task = loop.create_task(ask(batcher, request("a")))
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    assert loop.run_until_complete(asyncio.wait_for(task, TOO_LONG)) == answer_to(request("a"))
    loop.close()


def test_loops_may_follow_each_other_and_leave_nothing_behind() -> None:
    noted = Noted()

    async def send(requests: Any, timeout: float) -> list[Answer]:
        noted.note(requests, timeout)
        if requests[0].key.endswith("/a"):
            [task] = await start(batcher, request(requests[0].key[:-1] + "b"))  # waits, and its deadline is watched
            others.append(task)
        return noted.answers(requests)

    batcher = AsyncBatcher(send)
    others: list[Task[Answer]] = []

    async def both(turn: int) -> None:
        await all_of(await start(batcher, request(f"{turn}/a")))
        await all_of([others.pop()])

    before = queues()
    for turn in range(3):
        asyncio.run(both(turn))
    assert noted.calls == [[f"{turn}/{word}"] for turn in range(3) for word in "ab"]
    assert queues() == before, "no queue outlives its loop"


def test_two_loops_in_two_threads_do_not_wait_for_each_other() -> None:
    noted = Noted()
    gate = asyncio.Event()
    stuck: list[asyncio.AbstractEventLoop] = []

    async def send(requests: Any, timeout: float) -> list[Answer]:
        noted.note(requests, timeout)
        if requests[0].key == "stuck":
            stuck.append(asyncio.get_running_loop())
            await gate.wait()
        return noted.answers(requests)

    batcher = AsyncBatcher(send)
    one = in_thread(lambda: asyncio.run(ask(batcher, request("stuck"))))
    until(lambda: bool(stuck))
    assert asyncio.run(ask(batcher, request("free"))) == answer_to(request("free"))
    assert not one.done()
    stuck[0].call_soon_threadsafe(gate.set)
    assert one.result(TOO_LONG) == answer_to(request("stuck"))
    assert noted.calls == [["stuck"], ["free"]]


async def test_several_small_batches_are_in_flight_together() -> None:
    in_flight, most = 0, 0
    sizes: list[int] = []
    released = asyncio.Event()

    async def send(requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        nonlocal in_flight, most
        sizes.append(len(requests))
        in_flight += 1
        most = max(most, in_flight)
        if in_flight == 3:
            released.set()
        await released.wait()
        in_flight -= 1
        return [answer_to(one) for one in requests]

    batcher = AsyncBatcher(send, 3)
    requests = [request(f"key {number}") for number in range(100)]
    assert await all_of(await start(batcher, *requests)) == [answer_to(one) for one in requests]
    assert (sizes, most) == ([34, 34, 32], 3), "a third of the requests in flight or waiting, each time"


async def test_calls_that_never_wait_do_not_block_the_loop() -> None:
    """Callers that get an immediate answer call again immediately: other tasks still run between two of their calls."""

    async def send(requests: Sequence[AnyRequest], _: float) -> list[Answer]:
        return [answer_to(one) for one in requests]

    batcher, turns = AsyncBatcher(send), 0

    async def caller(name: str) -> None:
        for number in range(200):
            await ask(batcher, request(f"{name} {number}"))

    callers = asyncio.gather(caller("a"), caller("b"))
    while not callers.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 200


async def test_a_caller_that_asks_again_immediately_needs_no_new_task() -> None:
    senders: set[Task[Any] | None] = set()

    async def send(requests: Sequence[AnyRequest], _: float) -> list[Answer]:
        senders.add(asyncio.current_task())
        await asyncio.sleep(0)
        return [answer_to(one) for one in requests]

    batcher = AsyncBatcher(send, 2)
    for number in range(5):
        assert await ask(batcher, request(number)) == answer_to(request(number))
    assert len(senders) == 1


async def test_an_idle_batcher_keeps_neither_a_queue_nor_a_task() -> None:
    batcher, before = AsyncBatcher(LoopSend(), 2), queues()
    await all_of(await start(batcher, *(request(number) for number in range(100))))
    for _ in range(3):
        await asyncio.sleep(0)
    assert queues() == before
    assert asyncio.all_tasks() == {asyncio.current_task()}
