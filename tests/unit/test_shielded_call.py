"""A shielded coroutine runs to its end, even if the task that awaits it is cancelled meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from onceward.errors import StoreUnavailable
from onceward.runtime.aio import AsyncioRuntime
from tests.moved_time import TOO_LONG

Futures = list[asyncio.Future[str]]


def future() -> asyncio.Future[str]:
    return asyncio.get_running_loop().create_future()


async def tried_twice(futures: Futures) -> str:
    """Retry once after a failure, as a settlement does."""
    try:
        return await futures[0]
    except StoreUnavailable:
        return await futures[1]


@pytest.mark.fault("F51")
async def test_what_it_waits_for_may_fail_and_is_its_own_to_handle() -> None:
    two = [future(), future()]
    task = asyncio.ensure_future(finished(two))
    await asyncio.sleep(0)
    two[0].set_exception(StoreUnavailable("no answer"))
    await asyncio.sleep(0)
    two[1].set_result("settled")
    assert await asyncio.wait_for(task, TOO_LONG) == ("settled", None)


@pytest.mark.fault("F28")
async def test_a_cancelled_task_runs_it_to_the_end_and_is_cancelled_afterwards() -> None:
    two = [future(), future()]
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


async def test_what_it_raises_itself_is_raised() -> None:
    two = [future(), future()]
    task = asyncio.ensure_future(finished(two))
    await asyncio.sleep(0)
    two[0].set_exception(ValueError("of its own"))
    with pytest.raises(ValueError, match="of its own"):
        await asyncio.wait_for(task, TOO_LONG)


async def finished(futures: Futures) -> tuple[str, BaseException | None]:
    return await AsyncioRuntime().shield(tried_twice(futures))
