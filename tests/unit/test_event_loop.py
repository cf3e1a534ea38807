"""Each colour in its own world: `Once` never blocks an event loop, and no call of `AsyncOnce` does either."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, MemoryStore, Once, WrongWorld
from onceward.bridge import run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.link import Link

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
