"""Cancelled while the store has trouble with a settlement: it is sent again, and then the cancellation propagates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from onceward import AsyncOnce
from onceward.errors import ConfigurationError, StoreBroken, StoreUnavailable
from onceward.protocol.ports import Filter
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer
from onceward.stores import MemoryStore
from tests.moved_time import TOO_LONG

LOST = "applied, and its reply lost"


class FaultyStore(MemoryStore):
    """A store whose settlements wait until released; the first ones then fail as given."""

    inline = False
    answer = lookup = None  # type: ignore[assignment]  # how classes declare that they lack a method

    def __init__(self, *troubles: Exception | str) -> None:
        super().__init__()
        self.troubles = list(troubles)
        self.reached, self.free = asyncio.Event(), asyncio.Event()
        self.tried = 0

    async def settle(self, settlements: Sequence[Any], *, timeout: float, signed: Any = None) -> list[Answer]:
        self.tried += 1
        self.reached.set()
        await self.free.wait()
        trouble = self.troubles.pop(0) if self.troubles else None
        if isinstance(trouble, Exception):
            raise trouble
        answers = await super().settle(settlements, timeout=timeout, signed=signed)
        if trouble is LOST:
            raise StoreUnavailable(LOST)
        return answers


async def cancelled_in(store: FaultyStore, result: Any) -> None:
    once = AsyncOnce(store, settle_timeout="1h")

    @once(key="{key}")
    async def work(key: str) -> Any:
        return result

    task = asyncio.ensure_future(work("order 7"))
    await asyncio.wait_for(store.reached.wait(), TOO_LONG)
    task.cancel()
    store.free.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), TOO_LONG)
    assert task.cancelled()


@pytest.mark.fault("F28", "F53")
async def test_a_settlement_whose_reply_was_lost_is_sent_again() -> None:
    store = FaultyStore(LOST)
    await cancelled_in(store, "done")
    page = await store.scan(Filter(), cursor=None, limit=10, timeout=5)
    [state] = [record.state for record in page.records]
    assert (state, store.tried) == (RecordState.COMPLETED, 2)


@pytest.mark.fault("F28")
@pytest.mark.parametrize(
    "second",
    [StoreUnavailable("down"), StoreBroken("gone"), ConfigurationError("refused"), ValueError("a bug")],
    ids=repr,
)
async def test_whatever_the_second_try_raises_the_caller_was_cancelled(second: Exception) -> None:
    store = FaultyStore(StoreUnavailable("down"), second)
    await cancelled_in(store, "done")
    assert store.tried >= 2


@pytest.mark.fault("F28")
async def test_also_if_it_was_cancelled_while_a_large_result_was_encoded() -> None:
    store = FaultyStore(StoreBroken("gone"))
    store.free.set()
    once = AsyncOnce(store)
    large = [str(number) * 10 for number in range(20_000)]

    @once(key="{key}")
    async def work(key: str) -> list[str]:
        asyncio.get_running_loop().call_soon(task.cancel)  # arrives while the result is encoded in another thread
        return large

    task = asyncio.ensure_future(work("order 7"))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), TOO_LONG)
    assert store.tried
