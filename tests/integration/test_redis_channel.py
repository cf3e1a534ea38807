"""Many calls share batches and connections: whatever is lost, no caller gets the reply to the call of another."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import redis

from onceward import AsyncOnce, StoreUnavailable
from onceward.errors import WrongRuntime
from tests.collector import resting
from tests.moved_time import TOO_LONG
from tests.servers.redis import shared

KEYS = [f"order {number}" for number in range(60)]
Receive = Callable[[asyncio.StreamReaderProtocol, bytes], None]
Loss = Callable[[Receive, asyncio.StreamReaderProtocol, bytes], None]


class Interrupted(BaseException):
    """Raised by a signal's handler."""


@pytest.fixture
def once() -> AsyncOnce:
    """A client that is not closed: its loop ends with the test."""
    return AsyncOnce(f"{shared().url()}&prefix=channel-{uuid4().hex}", window="1h", lease="1500ms")


def lost_between(receive: Receive, protocol: asyncio.StreamReaderProtocol, data: bytes) -> None:
    """Drop the data, as if a signal had raised in the loop's own code before it reached redis-py."""


def interrupted_before(receive: Receive, protocol: asyncio.StreamReaderProtocol, data: bytes) -> None:
    raise Interrupted


def half_lost(receive: Receive, protocol: asyncio.StreamReaderProtocol, data: bytes) -> None:
    receive(protocol, data[: len(data) // 2])


@pytest.mark.fault("F51", "F53")
@pytest.mark.parametrize("fault", [lost_between, half_lost, interrupted_before])
async def test_whatever_is_lost_on_the_way_no_caller_gets_the_reply_of_another(
    once: AsyncOnce, fault: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects: Counter[str] = Counter()

    @once(key="{key}")
    async def work(key: str) -> str:
        effects[key] += 1
        return f"result of {key}"

    async def called(key: str) -> None:
        assert await work(key) == f"result of {key}"

    await asyncio.gather(*map(called, KEYS[:30]))
    receive, count = asyncio.StreamReaderProtocol.data_received, 0

    def faulty(protocol: asyncio.StreamReaderProtocol, data: bytes) -> None:
        nonlocal count
        count += 1
        if count == 2:
            fault(receive, protocol, data)
        else:
            receive(protocol, data)

    monkeypatch.setattr(asyncio.StreamReaderProtocol, "data_received", faulty)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    for _ in range(3):  # in the second round, replies of the first would be taken for these
        done = await asyncio.wait_for(asyncio.gather(*map(called, KEYS), return_exceptions=True), TOO_LONG)
        assert {type(one) for one in done} <= {type(None), StoreUnavailable}
    await asyncio.gather(*map(called, KEYS))
    assert effects == Counter(KEYS)
    assert count > 2


def test_a_program_that_exits_in_a_task_and_runs_its_loop_again_does_not_mix_up_replies(once: AsyncOnce) -> None:
    effects: Counter[str] = Counter()

    @once(key="{key}")
    async def work(key: str) -> str:
        effects[key] += 1
        return f"result of {key}"

    async def ends() -> None:
        await work("the last one")
        sys.exit(3)

    async def called(key: str) -> None:
        for _ in range(3):
            assert await work(key) == f"result of {key}"

    async def all_at_once() -> None:
        ending = asyncio.ensure_future(ends())
        await asyncio.gather(*map(called, KEYS))
        assert isinstance(ending.exception(), SystemExit)

    loop = asyncio.new_event_loop()
    crowd = loop.create_task(all_at_once())
    with pytest.raises(SystemExit):
        loop.run_until_complete(crowd)
    assert not crowd.done()
    loop.run_until_complete(asyncio.wait_for(crowd, TOO_LONG))
    assert effects == Counter([*KEYS, "the last one"])
    loop.run_until_complete(once.close())
    loop.close()


@pytest.mark.fault("F27", "F53")
@pytest.mark.parametrize("after", [False, True], ids=["before the call is sent", "after its reply was read"])
async def test_a_signal_that_arrives_during_a_call_keeps_no_caller_waiting(
    once: AsyncOnce, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    effects: Counter[str] = Counter()
    name = "read_response" if after else "send_packed_command"
    usual, struck = getattr(redis.asyncio.Connection, name), [10, 20]

    def strike() -> None:
        struck[:] = [number - 1 for number in struck]
        if 0 in struck:
            raise TimeoutError("raised by a signal's handler")

    async def faulty(connection: redis.asyncio.Connection, *arguments: Any, **options: Any) -> Any:
        if not after:
            strike()
        reply = await usual(connection, *arguments, **options)
        if after:
            strike()
        return reply

    @once(key="{key}")
    async def work(key: str) -> str:
        effects[key] += 1
        return f"result of {key}"

    assert await work("first") == "result of first"
    monkeypatch.setattr(redis.asyncio.Connection, name, faulty)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)

    async def several(number: int) -> None:
        for again in range(10):
            assert await work(f"{number}-{again}") == f"result of {number}-{again}"

    with resting():  # the garbage collector must not help
        await asyncio.wait_for(asyncio.gather(*[several(number) for number in range(8)]), TOO_LONG)
    assert max(struck) < 0
    assert set(effects.values()) == {1}


def test_a_call_outside_of_any_loop_says_so_also_when_the_store_is_open(once: AsyncOnce) -> None:
    @once(key="{key}")
    async def work(key: str) -> str:
        return key

    asyncio.run(work("a"))
    with pytest.raises(WrongRuntime):
        work("b").send(None)
    asyncio.run(once.close())


def test_a_loop_that_ends_closes_its_connections(once: AsyncOnce) -> None:
    """Also if the client stays open for the next loop, as in a program that calls `asyncio.run` several times."""

    @once(key="{key}")
    async def work(key: str) -> str:
        return key

    async def work_on_all(name: str) -> None:
        await asyncio.gather(*(work(f"{name} {number}") for number in range(40)))
        await asyncio.gather(*(once.store.read([bytes(32)], timeout=TOO_LONG) for _ in range(20)))

    with redis.Redis.from_url(shared().url().partition("?")[0]) as raw:
        before = {one["id"] for one in raw.client_list()}
        for name in ("first loop", "second loop"):
            asyncio.run(work_on_all(name))
            await_none_but(raw, before)
        asyncio.run(once.close())


def await_none_but(raw: Any, expected: set[str]) -> None:
    """Wait until the server has noticed that all other connections are closed."""
    for _ in range(400):
        if {one["id"] for one in raw.client_list()} <= expected:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"still connected: {raw.client_list()}")
