"""Each colour in its own world: `Once` never blocks an event loop, and no call of `AsyncOnce` does either."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Content, MemoryStore, Once, State, WrongWorld
from onceward.bridge import run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.link import Link
from tests.faces import Place

PAUSE = 0.001

# ── the wrong world ──


async def test_once_on_the_thread_of_an_event_loop_names_async_once(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/a.db")

    @once
    def work(x: int) -> int:
        pytest.fail("nothing may run")

    connection = sqlite3.connect(tmp_path / "other.db")
    calls: list[Any] = [
        lambda: work(1),
        lambda: work.outcome(1),
        lambda: work.read(1),
        lambda: work.forget(1),
        lambda: once.run("k", len, [1]),
        lambda: once.map(len, [[1]]),
        lambda: once.claim("k").__enter__(),
        lambda: once.within(connection).__enter__(),
        lambda: once.read("k"),
        lambda: once.forget("k"),
        once.purge,
    ]
    for call in calls:
        with pytest.raises(WrongWorld, match="AsyncOnce"):
            call()
    assert await asyncio.to_thread(once.run, "k", len, [1]) == 1  # another thread is fine
    await asyncio.to_thread(once.close)
    connection.close()


def test_async_once_outside_of_an_event_loop_names_once() -> None:
    once = AsyncOnce(MemoryStore())

    async def work() -> int:
        pytest.fail("nothing may run")

    with pytest.raises(WrongWorld, match="use Once"):
        run(once.run("k", work))
    with pytest.raises(WrongWorld, match="use Once"):
        run(once.claim("k").__aenter__())
    with pytest.raises(WrongWorld, match="use Once"):
        run(once.read("k"))


# ── the loop stays free ──


@contextlib.asynccontextmanager
async def ticking() -> AsyncIterator[list[float]]:
    """How long the loop was kept from a task that only wants to tick: each gap, in seconds."""
    gaps: list[float] = []

    async def tick() -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(PAUSE)  # not 0: a loop that never rests keeps the store's thread from the interpreter
            now = time.perf_counter()
            gaps.append(now - before - PAUSE)
            before = now

    task = asyncio.create_task(tick())
    try:
        yield gaps
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.contextmanager
def locked_by_another_process(path: Path, seconds: float) -> Iterator[None]:
    """Another process holds the write lock of the file for so long."""
    script = (
        "import sqlite3, sys, time\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE')\n"
        "print('locked', flush=True)\n"
        "time.sleep(float(sys.argv[2]))\n"
        "c.execute('COMMIT')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path), str(seconds)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        yield
        assert other.wait(20) == 0


async def number(x: int) -> int:
    return x


@pytest.mark.mission("A4")
async def test_every_call_to_a_file_is_made_on_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[int]] = {}

    def watch(name: str) -> None:
        original = getattr(Link, name)

        def watched(*args: Any) -> Any:
            seen.setdefault(name, set()).add(threading.get_ident())
            return original(*args)

        monkeypatch.setattr(Link, name, watched)

    for name in ("open", "turn", "write", "close"):
        watch(name)
    async with AsyncOnce(f"sqlite:///{tmp_path}/a.db") as once:
        work = once(number)
        await work(1)
        await work.outcome(1)
        await work.read(1)
        await work.forget(1)
        await once.map(number, [2, 3])
        async with once.claim("k") as claim:
            await claim.annotate(a="b")
            await claim.complete(1)
        await once.purge()
    assert set(seen) == {"open", "turn", "write", "close"}
    assert threading.get_ident() not in set().union(*seen.values())


@pytest.mark.mission("A4")
async def test_two_hundred_claims_on_a_file_leave_the_loop_free(tmp_path: Path) -> None:
    async with AsyncOnce(SQLiteStore(tmp_path / "a.db")) as once:
        await once.run("warm", number, 0)

        async def worker(name: str) -> None:
            for x in range(20):
                await once.run(f"{name}:{x}", number, x)

        longest = []
        for attempt in range(5):  # the machine may be busy; a call of ours that blocks would show every time
            async with ticking() as gaps:
                await asyncio.gather(*(worker(f"{attempt}:{each}") for each in range(10)))
            longest.append(max(gaps))
            if longest[-1] < 0.01:
                break
        assert min(longest) < 0.02, longest


@pytest.mark.mission("A4")
async def test_the_loop_stays_free_while_another_process_holds_the_write_lock(tmp_path: Path) -> None:
    async with AsyncOnce(SQLiteStore(tmp_path / "a.db")) as once:
        await once.run("warm", number, 0)
        held_for, longest = [], []
        for attempt in range(3):
            with locked_by_another_process(tmp_path / "a.db", 0.3):
                async with ticking() as gaps:
                    before = time.perf_counter()
                    await asyncio.gather(*(once.run(f"{attempt}:{x}", number, x) for x in range(20)))
                    held_for.append(time.perf_counter() - before)
            longest.append(max(gaps))
        assert max(held_for) > 0.2  # they did have to wait
        assert min(longest) < 0.1, longest


# ── nor does anything that we compute ──


MANY: list[tuple[int, str]] = [(x, str(x)) for x in range(100_000)]
"""Tuples take the careful way of the encoders: about 0.2 s of pure Python."""


async def quietest(call: Callable[[int], Coroutine[Any, Any, object]]) -> float:
    """The longest gap of the best of a few rounds: the machine may be busy, but what blocks shows every time."""
    longest = []
    for attempt in range(4):
        gc.collect()
        gc.disable()  # a collection of all that the tests hold would count as ours
        try:
            async with ticking() as gaps:
                await asyncio.sleep(2 * PAUSE)
                await call(attempt)
                await asyncio.sleep(2 * PAUSE)
        finally:
            gc.enable()
        longest.append(max(gaps))
        if longest[-1] < 0.01:
            break
    return min(longest)


async def many() -> list[tuple[int, str]]:
    return MANY


@contextlib.asynccontextmanager
async def warm(place: Place) -> AsyncIterator[AsyncOnce]:
    async with AsyncOnce(place.open(), max_result_bytes=1 << 26) as once:
        await once.run("warm", number, 0)
        yield once


LONGEST = 0.04  # a tenth of a second and more without a worker thread


@pytest.mark.mission("A4")
async def test_hashing_a_file_leaves_the_loop_free(place: Place, tmp_path: Path) -> None:
    async with warm(place) as once:
        with (tmp_path / "large").open("wb") as file:
            file.truncate(150 << 20)

        @once(name="extract", key=Content("path"))
        async def extract(path: Path) -> None: ...

        assert await quietest(lambda _: extract(tmp_path / "large")) < LONGEST
        assert await quietest(lambda _: extract.read(tmp_path / "large")) < LONGEST


@pytest.mark.mission("A4")
async def test_hashing_large_arguments_leaves_the_loop_free(place: Place) -> None:
    async with warm(place) as once:

        async def count(items: list[tuple[int, str]], x: int) -> int:
            return len(items)

        async def block(x: int) -> None:
            async with once.claim(("block", x), payload=MANY):
                pass

        assert await quietest(lambda x: once.run(("given", x), count, MANY, x)) < LONGEST
        assert await quietest(lambda x: once(name="all")(count)(MANY, x)) < LONGEST
        assert await quietest(block) < LONGEST


@pytest.mark.mission("A4")
async def test_encoding_and_decoding_large_results_leaves_the_loop_free(place: Place) -> None:
    async with warm(place) as once:
        assert await quietest(lambda x: once.run(("large", x), many)) < LONGEST
        assert await quietest(lambda _: once.run(("large", 0), many)) < LONGEST
        assert await once.run(("large", 0), many) == MANY


@pytest.mark.mission("A4")
async def test_a_result_over_the_limit_leaves_the_loop_free_too(place: Place) -> None:
    async with warm(place) as once:
        small = once.using(max_result_bytes=1000)
        assert await quietest(lambda x: small.run(("over", x), many)) < LONGEST


@pytest.mark.mission("A4")
async def test_a_map_of_thousands_lets_others_have_their_turn() -> None:
    once = AsyncOnce(MemoryStore())  # which never waits, so that nothing else would

    async def thousands(attempt: int) -> None:
        await once.map(number, range(attempt * 5_000, (attempt + 1) * 5_000), key="{x}")

    assert await quietest(thousands) < LONGEST
    assert await quietest(lambda _: thousands(0)) < LONGEST  # replays
    assert await quietest(lambda x: once.map(number, [x] * 20_000, key="same:{x}")) < LONGEST


@pytest.mark.fault("F3")
async def test_a_result_is_recorded_though_its_caller_is_cancelled_while_it_is_encoded(place: Place) -> None:
    async with AsyncOnce(place.open(), max_result_bytes=1 << 26) as once:
        thinking = asyncio.Event()
        think = once.engine.world.think

        async def telling(call: Any, *arguments: Any) -> Any:
            thinking.set()
            return await think(call, *arguments)

        once.engine.world.think = telling  # type: ignore[method-assign]
        call = asyncio.create_task(once.run("k", many))
        await thinking.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        entry = await once.read("k")
        assert entry is not None
        assert entry.record.state is State.COMPLETED


async def test_a_small_call_needs_no_other_thread() -> None:
    once = AsyncOnce(MemoryStore())
    once.engine.world.think = None  # type: ignore[assignment,method-assign]
    order = {
        "id": 7,
        "lines": [{"sku": "a", "price": Decimal("1.50")}] * 5,
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    }

    async def echo(order: dict[str, object]) -> dict[str, object]:
        return order

    for _ in range(2):
        assert await once.run("k", echo, order) == order
        assert await once(name="echo")(echo)(order) == order
    async with once.claim("block", payload=order):
        pass
