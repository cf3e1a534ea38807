"""GeneratorExit in async work: raised by the work itself, it is settled; a coroutine that is closed cannot wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, RecordState

pytestmark = [pytest.mark.finding("N76")]


async def raises() -> None:
    raise GeneratorExit("mine")


async def raises_later() -> None:
    await asyncio.sleep(0)
    raise GeneratorExit("mine")


async def raises_below() -> None:
    await raises_later()


Handler = Callable[[], Coroutine[Any, Any, None]]


@pytest.mark.parametrize("handler", [raises, raises_later, raises_below])
async def test_a_handler_that_raises_generator_exit_does_not_keep_its_key(tmp_path: Path, handler: Handler) -> None:
    async with AsyncOnce(f"sqlite:///{tmp_path}/once.db", lease="1h") as once:
        with pytest.raises(GeneratorExit, match="mine"):
            await once.run("k", handler)
        entry = await once.read("k")
        assert entry is not None
        assert entry.state is RecordState.FAILED


@pytest.mark.parametrize("catches", [False, True])
async def test_a_call_that_is_closed_waits_for_nothing_and_its_lease_expires(tmp_path: Path, catches: bool) -> None:
    closed: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except GeneratorExit:
            closed.append("handler")
            if not catches:
                raise

    async with AsyncOnce("memory://", lease="1h") as once:
        call: Any = once.run("k", waits)
        call.send(None)
        call.close()  # raises RuntimeError if the call awaits anything
        assert closed == ["handler"]
        entry = await once.read("k")
        assert entry is not None
        assert entry.state is RecordState.PENDING


class Until:
    """Run a coroutine inside this task until it has reached the given point, and then no further."""

    def __init__(self, call: Coroutine[Any, Any, None], reached: list[str]) -> None:
        self._call = call
        self._reached = reached

    def __await__(self) -> Generator[Any, None, None]:
        waits_for = self._call.send(None)
        while not self._reached:
            yield waits_for
            waits_for = self._call.send(None)


@pytest.mark.parametrize("kind", ["claim", "lock"])
async def test_a_block_that_is_closed_waits_for_nothing(tmp_path: Path, kind: str) -> None:
    reached: list[str] = []
    async with AsyncOnce(f"sqlite:///{tmp_path}/once.db", lease="1h") as once:

        async def work() -> None:
            async with once.claim("k") if kind == "claim" else once.lock("k"):
                reached.append("inside")
                await asyncio.get_running_loop().create_future()

        call = work()
        await Until(call, reached)
        call.close()  # raises RuntimeError if the block awaits anything
        if kind == "lock":
            async with once.lock("k", wait="60s"):  # the heartbeat's thread has released it, long before its lease
                reached.append("again")
            assert reached == ["inside", "again"]
        else:
            entry = await once.read("k")
            assert entry is not None
            assert entry.state is RecordState.PENDING
