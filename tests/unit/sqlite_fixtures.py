"""Fixtures: a SQLite store per test, with a fake clock, called from threads or from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.clock import FakeClock
from tests.unit.sqlite_calls import Blocking, Mode, OnALoop


@pytest.fixture(params=["threads", "loop"])
def mode(request: pytest.FixtureRequest) -> Iterator[Mode]:
    if request.param == "threads":
        yield Blocking()
        return
    with asyncio.Runner() as runner:
        loop = OnALoop(runner)
        yield loop
        loop.runtime.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "once.db"


@pytest.fixture
def store(path: Path, clock: FakeClock) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(path, synchronous="NORMAL", clock=clock)
    run(opened.open(ThreadRuntime()))
    yield opened
    run(opened.close())
