"""`close` while calls are in flight: each call finishes or is released, and no key stays locked."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onceward import AsyncOnce, Once
from onceward.errors import Stopping
from onceward.protocol.ports import Filter
from onceward.protocol.record import RecordState
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime
from tests.clients import TOO_LONG, Backend

on_every_store = pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres", "valkey"], indirect=True)

CALLS = 60
ROUNDS = 12


class Work:
    """Counts what was run. `begun` is set when the first call has begun."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def __call__(self, key: str) -> str:
        self.done[key] += 1
        return key

    async def slowly(self, key: str) -> str:
        await asyncio.sleep(0)
        return self(key)


def check(backend: Backend, work: Work, results: list[Any]) -> None:
    """Check that every call returned its value or Stopping, and that no record is PENDING."""
    odd = [one for one in results if not isinstance(one, str | Stopping)]
    assert odd == []
    returned = Counter(one for one in results if isinstance(one, str))
    assert returned == work.done, "what ran was recorded, and what was refused did not run"
    store = backend.open()
    run(store.open(ThreadRuntime()))
    page = run(store.scan(Filter(states=(RecordState.PENDING,)), cursor=None, limit=1000, timeout=10))
    assert [record.key for record in page.records if not record.released] == []
    run(store.close())


@pytest.mark.finding("N69")
@on_every_store
async def test_closing_an_async_client_finishes_or_releases_every_call_in_flight(backend: Backend) -> None:
    for turn in range(ROUNDS):
        once, work = AsyncOnce(backend.open(), lease="1h", fingerprint="none"), Work()
        await once.run(f"{turn} warm", work.slowly, f"{turn} warm")
        keys = [f"{turn} {number}" for number in range(CALLS)]
        calls = [asyncio.create_task(once.run(key, work.slowly, key)) for key in keys]
        for _ in range(turn):
            await asyncio.sleep(0)
        await once.close()
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), TOO_LONG)
        check(backend, work, [f"{turn} warm", *results])


@pytest.mark.finding("N69")
@on_every_store
def test_closing_a_sync_client_finishes_or_releases_every_call_in_flight(backend: Backend) -> None:
    with ThreadPoolExecutor(16) as pool:
        for turn in range(ROUNDS):
            once, work, begun = Once(backend.open(), lease="1h", fingerprint="none"), Work(), threading.Event()

            def call(key: str, once: Once = once, work: Work = work, begun: threading.Event = begun) -> Any:
                begun.set()
                try:
                    return once.run(key, work, key)
                except BaseException as error:
                    return error

            calls = [pool.submit(call, f"{turn} {number}") for number in range(CALLS)]
            assert begun.wait(TOO_LONG)
            once.close()
            check(backend, work, [one.result(TOO_LONG) for one in calls])
