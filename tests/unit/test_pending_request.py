"""A request whose task resumes in the loop iteration in which its answer arrives. No cancellation takes it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Answer, Verdict
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.pending_request import PendingRequest, deliver_results
from tests.moved_time import TOO_LONG
from tests.unit.batcher_calls import request

THERE = Answer(Verdict.OK, None, 1)

whose: ContextVar[str] = ContextVar("whose", default="none")


def new_request() -> PendingRequest:
    return PendingRequest(request("a"), TOO_LONG, asyncio.get_running_loop().create_future())


async def until_it_waits() -> None:
    await asyncio.sleep(0)


def from_a_callback(requests: Sequence[PendingRequest]) -> None:
    """Deliver the results of a batch outside of any task."""
    asyncio.get_running_loop().call_soon(deliver_results, requests, [THERE] * len(requests))


async def unshielded(one: PendingRequest) -> Answer:
    [answer] = await one
    return answer


async def staying(one: PendingRequest) -> Answer:
    """Wait as the flows do."""
    try:
        return await one.future
    except BaseException as error:
        [answer], cancelled = await one.finish_after(error)
        raise cancelled from RuntimeError(answer.verdict)


async def finishing(one: PendingRequest) -> Answer:
    """Wait as every other call does."""
    [answer], cancelled = await AsyncioRuntime().shield(one)
    if cancelled is not None:
        raise cancelled from RuntimeError(answer.verdict)
    return answer


stays = pytest.mark.parametrize("wait", [staying, finishing])
waits = pytest.mark.parametrize("wait", [unshielded, staying, finishing])
Wait = Callable[[PendingRequest], Any]


@waits
async def test_tasks_whose_results_arrive_together_resume_in_the_same_iteration(wait: Wait) -> None:
    three, order = [new_request(), new_request(), new_request()], []

    async def call(number: int) -> None:
        order.append((number, await wait(three[number])))

    tasks = [asyncio.ensure_future(call(number)) for number in range(3)]
    await until_it_waits()
    from_a_callback(three)
    asyncio.get_running_loop().call_soon(order.append, (3, THERE))
    await asyncio.gather(*tasks)
    assert order == [(number, THERE) for number in range(4)]


async def test_each_task_resumes_in_its_own_context() -> None:
    two, seen = [new_request(), new_request()], []

    async def call(number: int) -> None:
        whose.set(f"of {number}")
        await two[number].future
        seen.append(whose.get())

    tasks = [asyncio.ensure_future(call(number)) for number in range(2)]
    await until_it_waits()
    from_a_callback(two)
    await asyncio.gather(*tasks)
    assert seen == ["of 0", "of 1"]
    assert whose.get() == "none"


async def test_results_delivered_inside_a_task_wake_the_waiters_soon() -> None:
    """A task cannot step another one: the task that has just queued its request delivers an immediate failure."""
    one = new_request()
    task = asyncio.ensure_future(staying(one))
    await until_it_waits()
    deliver_results([one], [THERE])
    assert not task.done()
    assert await task is THERE


async def test_a_task_that_does_not_wait_yet_finds_the_answer() -> None:
    early, left = new_request(), new_request()
    left.future.cancel()
    left.keeps_waiting = False
    from_a_callback([early, left])
    await until_it_waits()
    assert await staying(early) is THERE
    assert left.is_done()


@pytest.mark.fault("F51")
def test_ctrl_c_in_one_task_still_wakes_the_others() -> None:
    loop = asyncio.new_event_loop()
    done: list[int] = []

    async def call(number: int, one: PendingRequest) -> None:
        await one.future
        if number == 1:
            raise KeyboardInterrupt
        done.append(number)

    three = [PendingRequest(request("a"), TOO_LONG, loop.create_future()) for _ in range(3)]
    tasks = [loop.create_task(call(number, one)) for number, one in enumerate(three)]
    loop.run_until_complete(asyncio.sleep(0))
    loop.call_soon(deliver_results, three, [THERE] * 3)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(TOO_LONG))
    loop.run_until_complete(asyncio.wait_for(tasks[2], TOO_LONG))
    assert done == [0, 2]
    assert isinstance(tasks[1].exception(), KeyboardInterrupt)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.mark.fault("F28")
@stays
async def test_a_cancelled_task_gets_its_answer_and_the_cancellation_with_it(wait: Wait) -> None:
    one = new_request()
    task = asyncio.ensure_future(wait(one))
    await until_it_waits()
    for _ in range(3):
        task.cancel()
        await until_it_waits()
        assert not task.done(), "its request is in flight"
    assert not one.is_done()
    from_a_callback([one])
    with pytest.raises(asyncio.CancelledError) as caught:
        await asyncio.wait_for(task, TOO_LONG)
    assert str(caught.value.__cause__) == Verdict.OK


@pytest.mark.fault("F28")
@stays
@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_task_that_is_cancelled_just_as_its_answer_comes_gets_both(wait: Wait, turns: int) -> None:
    one = new_request()
    task = asyncio.ensure_future(wait(one))
    await until_it_waits()
    task.cancel()
    for _ in range(turns):
        await until_it_waits()
    deliver_results([one], [THERE])  # in this task, so that the other is woken soon
    with pytest.raises(asyncio.CancelledError) as caught:
        await asyncio.wait_for(task, TOO_LONG)
    assert str(caught.value.__cause__) == Verdict.OK


@pytest.mark.fault("F28")
@stays
async def test_a_task_that_is_cancelled_when_its_answer_is_there_gets_both(wait: Wait) -> None:
    one = new_request()
    task = asyncio.ensure_future(wait(one))
    await until_it_waits()
    deliver_results([one], [THERE])
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await asyncio.wait_for(task, TOO_LONG)
    assert str(caught.value.__cause__) == Verdict.OK


@waits
async def test_a_failure_is_raised_in_the_waiting_task(wait: Wait) -> None:
    one = new_request()
    task = asyncio.ensure_future(wait(one))
    await until_it_waits()
    one.fail(StoreUnavailable("no answer"))
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(task, TOO_LONG)


@pytest.mark.fault("F28")
@stays
@pytest.mark.parametrize("turns", [0, 1])
async def test_a_cancelled_task_whose_request_fails_is_cancelled_for_that_reason(wait: Wait, turns: int) -> None:
    one = new_request()
    task = asyncio.ensure_future(wait(one))
    await until_it_waits()
    task.cancel()
    for _ in range(turns):
        await until_it_waits()
    one.fail(StoreUnavailable("no answer"))
    with pytest.raises(asyncio.CancelledError) as caught:
        await asyncio.wait_for(task, TOO_LONG)
    assert isinstance(caught.value.__cause__, StoreUnavailable)


async def test_a_task_that_awaits_it_unshielded_ends_when_it_is_cancelled() -> None:
    one = new_request()
    task = asyncio.ensure_future(unshielded(one))
    await until_it_waits()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.is_done()
    one.resolve(THERE)
    one.fail(StoreUnavailable("not delivered"))


async def test_a_request_without_a_waiter_may_fail_silently(caplog: pytest.LogCaptureFixture) -> None:
    new_request().fail(StoreUnavailable("no answer"))
    await until_it_waits()
    assert not caplog.records
