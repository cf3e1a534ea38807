"""A future that wakes its task in the turn in which its answer comes, and is one like any other in all else."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from onceward.errors import StoreUnavailable
from onceward.worlds.landing import Landing, wake
from tests.moved_time import TOO_LONG

whose: ContextVar[str] = ContextVar("whose", default="nobody's")


def landing() -> Landing[str]:
    return Landing(asyncio.get_running_loop())


async def until_it_waits() -> None:
    await asyncio.sleep(0)


def from_a_callback(landed: list[Landing[str]]) -> None:
    """As a flight lands: in no task."""
    for one in landed:
        one.arrive("there")
    asyncio.get_running_loop().call_soon(wake, landed)


async def test_those_who_arrive_together_go_on_in_the_same_turn() -> None:
    three, order = [landing(), landing(), landing()], []

    async def passenger(number: int) -> None:
        order.append(f"{number} {await three[number]}")

    tasks = [asyncio.ensure_future(passenger(number)) for number in range(3)]
    await until_it_waits()
    from_a_callback(three)
    asyncio.get_running_loop().call_soon(order.append, "what came after")
    await asyncio.gather(*tasks)
    assert order == ["0 there", "1 there", "2 there", "what came after"]


async def test_each_goes_on_in_its_own_context() -> None:
    two, seen = [landing(), landing()], []

    async def passenger(number: int) -> None:
        whose.set(f"of {number}")
        await two[number]
        seen.append(whose.get())

    tasks = [asyncio.ensure_future(passenger(number)) for number in range(2)]
    await until_it_waits()
    from_a_callback(two)
    await asyncio.gather(*tasks)
    assert seen == ["of 0", "of 1"]
    assert whose.get() == "nobody's"


async def test_inside_of_a_task_they_are_woken_soon() -> None:
    """A task cannot step into another: what fails at once is told by the task that has just boarded."""
    one = landing()

    async def passenger() -> str:
        return await one

    task = asyncio.ensure_future(passenger())
    await until_it_waits()
    one.arrive("there")
    wake([one])
    assert not task.done()
    assert await task == "there"


@pytest.mark.fault("F51")
def test_ctrl_c_in_one_of_them_leaves_nobody_asleep() -> None:
    loop = asyncio.new_event_loop()
    done: list[int] = []

    async def passenger(number: int, one: Landing[str]) -> None:
        await one
        if number == 1:
            raise KeyboardInterrupt
        done.append(number)

    three = [Landing[str](loop) for _ in range(3)]
    tasks = [loop.create_task(passenger(number, one)) for number, one in enumerate(three)]
    loop.run_until_complete(asyncio.sleep(0))
    for one in three:
        one.arrive("there")
    loop.call_soon(wake, three)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(TOO_LONG))
    loop.run_until_complete(asyncio.wait_for(tasks[2], TOO_LONG))
    assert done == [0, 2]
    assert isinstance(tasks[1].exception(), KeyboardInterrupt)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def test_whatever_takes_futures_takes_it() -> None:
    three_landings: list[Any] = [landing(), landing(), landing()]
    one, two, three = three_landings
    assert asyncio.isfuture(one)
    together = asyncio.gather(one, asyncio.shield(two), return_exceptions=True)
    limited = asyncio.ensure_future(asyncio.wait_for(one, TOO_LONG))
    waited = asyncio.ensure_future(asyncio.wait([three]))
    await until_it_waits()
    one.set_result("there")
    two.set_exception(StoreUnavailable("no answer"))
    three.set_result("there, too")
    first, second = await together
    assert (first, type(second)) == ("there", StoreUnavailable)
    assert await limited == "there"
    assert await waited == ({three}, set())
    assert isinstance(two.exception(), StoreUnavailable)


async def test_before_it_is_done_it_has_no_answer() -> None:
    one, told = landing(), list[object]()
    for ask in (one.result, one.exception):
        with pytest.raises(asyncio.InvalidStateError):
            ask()
    one.add_done_callback(told.append)
    one.add_done_callback(print)
    one.add_done_callback(print)
    assert one.remove_done_callback(print) == 2
    one.set_result("there")
    await until_it_waits()
    assert told == [one]
    one.add_done_callback(told.append)
    await until_it_waits()
    assert told == [one, one]


async def test_it_can_be_cancelled_unless_it_is_to_stay() -> None:
    one, staying = landing(), landing()
    staying.stays = True
    assert not staying.cancel()
    assert one.cancel("enough")
    assert one.cancelled()
    assert not one.cancel()
    with pytest.raises(asyncio.CancelledError):
        one.exception()
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_a_gathering_of_them_can_be_cancelled() -> None:
    two: list[Any] = [landing(), landing()]
    together = asyncio.gather(*two)
    await until_it_waits()
    together.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(together, TOO_LONG)
