"""A coroutine that its task runs to the end, whoever cancels that task meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward.errors import StoreUnavailable
from onceward.worlds.aio import EventLoop
from onceward.worlds.finishing import Finishing
from onceward.worlds.landing import Landing
from tests.moved_time import TOO_LONG

Futures = list[asyncio.Future[str]]


def plain() -> asyncio.Future[str]:
    return asyncio.get_running_loop().create_future()


def landing() -> Landing[str]:
    return Landing(asyncio.get_running_loop())


@pytest.fixture(params=[plain, landing])
def futures(request: pytest.FixtureRequest) -> Any:
    return request.param


async def tried_twice(futures: Futures) -> str:
    """As a settlement: what fails is asked once more."""
    try:
        return await futures[0]
    except StoreUnavailable:
        return await futures[1]


@pytest.mark.fault("F51")
async def test_what_it_waits_for_may_fail_and_is_its_own_to_handle(futures: Any) -> None:
    two = [futures(), futures()]
    task = asyncio.ensure_future(finished(two))
    await asyncio.sleep(0)
    two[0].set_exception(StoreUnavailable("no answer"))
    await asyncio.sleep(0)
    two[1].set_result("settled")
    assert await asyncio.wait_for(task, TOO_LONG) == ("settled", None)


@pytest.mark.fault("F28")
async def test_a_cancelled_task_runs_it_to_the_end_and_is_told_afterwards(futures: Any) -> None:
    two = [futures(), futures()]
    task = asyncio.ensure_future(finished(two))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    two[0].set_exception(StoreUnavailable("no answer"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    two[1].set_result("settled")
    value, cancelled = await asyncio.wait_for(task, TOO_LONG)
    assert value == "settled"
    assert isinstance(cancelled, asyncio.CancelledError)


async def test_what_it_raises_itself_is_raised(futures: Any) -> None:
    two = [futures(), futures()]
    task = asyncio.ensure_future(finished(two))
    await asyncio.sleep(0)
    two[0].set_exception(ValueError("of its own"))
    with pytest.raises(ValueError, match="of its own"):
        await asyncio.wait_for(task, TOO_LONG)


async def finished(futures: Futures) -> tuple[str, BaseException | None]:
    return await Finishing(tried_twice(futures), None)


async def landed(future: asyncio.Future[str]) -> tuple[str, BaseException | None]:
    return await EventLoop().finish(future)


@pytest.mark.fault("F28")
async def test_a_future_that_is_awaited_as_it_is_comes_with_the_cancellation_beside_it(futures: Any) -> None:
    one = futures()
    task = asyncio.ensure_future(landed(one))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    one.set_result("granted")
    value, cancelled = await asyncio.wait_for(task, TOO_LONG)
    assert value == "granted"
    assert isinstance(cancelled, asyncio.CancelledError)


async def test_a_future_that_is_done_or_that_fails_is_awaited_likewise(futures: Any) -> None:
    one, two = futures(), futures()
    one.set_result("granted")
    assert await landed(one) == ("granted", None)
    task = asyncio.ensure_future(landed(two))
    await asyncio.sleep(0)
    two.set_exception(StoreUnavailable("no answer"))
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(task, TOO_LONG)


@pytest.mark.fault("F28")
async def test_a_cancelled_task_whose_future_fails_is_cancelled_for_that_reason(futures: Any) -> None:
    one = futures()
    task = asyncio.ensure_future(landed(one))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    one.set_exception(StoreUnavailable("no answer"))
    with pytest.raises(asyncio.CancelledError) as caught:
        await asyncio.wait_for(task, TOO_LONG)
    assert isinstance(caught.value.__cause__, StoreUnavailable)
