"""Sync and async clients in the wrong runtime: the error names the right one, before anything has happened."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once
from onceward.errors import WrongRuntime
from onceward.runtime.threads import run
from onceward.stores import MemoryStore


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
        lambda: once.lock("k").acquire(),
        lambda: once.try_lock("k"),
        lambda: once.read("k"),
        lambda: once.forget("k"),
        once.purge,
    ]
    for call in calls:
        with pytest.raises(WrongRuntime, match="AsyncOnce"):
            call()
    assert await asyncio.to_thread(once.run, "k", len, [1]) == 1  # another thread is fine
    await asyncio.to_thread(once.close)
    connection.close()


def test_async_once_outside_of_an_event_loop_names_once() -> None:
    once = AsyncOnce(MemoryStore())

    async def work() -> int:
        pytest.fail("nothing may run")

    with pytest.raises(WrongRuntime, match="use the sync client Once"):
        run(once.run("k", work))
    with pytest.raises(WrongRuntime, match="use the sync client Once"):
        run(once.claim("k").__aenter__())
    with pytest.raises(WrongRuntime, match="use the sync client Once"):
        run(once.try_lock("k"))
    with pytest.raises(WrongRuntime, match="use the sync client Once"):
        run(once.read("k"))
