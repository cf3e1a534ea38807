"""A request and the future of its answer. A cancellation does not take an answer back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Answer, Verdict
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.pending_request import PendingRequest
from tests.moved_time import TOO_LONG
from tests.unit.batcher_calls import request

THERE = Answer(Verdict.OK, None, 1)


def new_request() -> PendingRequest:
    return PendingRequest(request("a"), TOO_LONG, asyncio.get_running_loop().create_future())


async def until_it_waits() -> None:
    await asyncio.sleep(0)


def from_a_callback(requests: Sequence[PendingRequest]) -> None:
    """Deliver the answers of a batch."""
    for one in requests:
        asyncio.get_running_loop().call_soon(one.resolve, THERE)


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


async def test_a_task_that_does_not_wait_yet_finds_the_answer() -> None:
    early, left = new_request(), new_request()
    left.future.cancel()
    left.keeps_waiting = False
    from_a_callback([early, left])
    await until_it_waits()
    assert await staying(early) is THERE
    assert left.is_done()


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
    one.resolve(THERE)  # in this task, so that the other is woken soon
    with pytest.raises(asyncio.CancelledError) as caught:
        await asyncio.wait_for(task, TOO_LONG)
    assert str(caught.value.__cause__) == Verdict.OK


@pytest.mark.fault("F28")
@stays
async def test_a_task_that_is_cancelled_when_its_answer_is_there_gets_both(wait: Wait) -> None:
    one = new_request()
    task = asyncio.ensure_future(wait(one))
    await until_it_waits()
    one.resolve(THERE)
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
