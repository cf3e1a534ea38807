"""Work that is cancelled twice or while the store is in trouble, and stores that will not come back."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once, RecordState, Unknown
from onceward.errors import StoreBroken
from onceward.protocol.ports import Store
from onceward.stores import MemoryStore
from tests.clients import Backend
from tests.faulty import FaultyNetwork, FaultyStore
from tests.integration.processes import store

__all__ = ["store"]  # fixtures, listed here so that pytest finds them


# ── cancelled twice, or while the store is in trouble ──


class SlowStore(FaultyStore):
    """Every call takes a few iterations of the loop, as over a network."""

    def __init__(self, store: Store, network: FaultyNetwork) -> None:
        super().__init__(store, network)
        self.inline = False

    async def _through(self, *call: Any) -> Any:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super()._through(*call)


@pytest.mark.fault("F28")
@pytest.mark.parametrize("bulk", [False, True])
async def test_cancelled_twice_at_any_turn_leaves_no_key_locked(bulk: bool) -> None:
    once = AsyncOnce(SlowStore(MemoryStore(), FaultyNetwork()), lease="1h", fingerprint="none")

    async def work(_item: Any = None) -> None:
        await asyncio.sleep(0)

    for first in range(16):
        for second in range(8):
            key = f"{first} {second}"
            call = once.map(work, [key, key + "b"], key="{_item}", name="shared") if bulk else once.run(key, work)
            task = asyncio.ensure_future(call)
            for _ in range(first):
                await asyncio.sleep(0)
            task.cancel()
            for _ in range(second):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            for one in (key, key + "b"):
                entry = await once.read(one)
                assert entry is None or entry.state is not RecordState.PENDING, key
            assert not once.heartbeat.held()
    await once.close()


@pytest.mark.fault("F28")
async def test_what_is_left_of_a_cancelled_batch_is_released_in_one_call() -> None:
    network = FaultyNetwork()
    once = AsyncOnce(SlowStore(MemoryStore(), network))
    begun = asyncio.Event()

    async def work(item: int) -> None:
        begun.set()
        await asyncio.sleep(60)

    task = asyncio.ensure_future(once.map(work, range(100), key="{item}"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert network.calls["settle"] == 2  # the one that was begun, and all the others
    await once.close()


@pytest.mark.fault("F28", "F50")
@pytest.mark.parametrize("on_store_down", ["raise", "run"])
async def test_a_release_that_fails_does_not_hide_the_cancellation(on_store_down: Any) -> None:
    network = FaultyNetwork()
    network.lose_requests("settle")
    once = AsyncOnce(SlowStore(MemoryStore(), network), on_store_down=on_store_down)

    async def never() -> None:
        pytest.fail("cancelled work must not run")

    task = asyncio.ensure_future(once.run("order 7", never))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert network.calls["settle"] == 1
    await once.close()


@pytest.mark.fault("F28")
async def test_a_settlement_is_reported_even_if_its_caller_was_cancelled(backend: Backend) -> None:
    once = AsyncOnce(SlowStore(backend.open(), FaultyNetwork()))
    event_names: list[str] = []
    once.subscribe(lambda event: event_names.append(event.name))
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    task = asyncio.ensure_future(once.run("order 7", work))
    await done.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert event_names == ["acquired", "completed"]
    await once.close()


# ── a store that will not come back ──


@pytest.mark.fault("F51")
def test_work_that_ends_after_the_client_was_closed_is_unknown_immediately(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/once.db", lease="1h")
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(60)

    outcomes: list[Any] = []
    worker = threading.Thread(target=lambda: outcomes.append(once.outcome("order 7", work)))
    worker.start()
    assert begun.wait(60)
    once.close(timeout=0)
    since = time.monotonic()
    go.set()
    worker.join(60)
    assert isinstance(outcomes[0], Unknown)
    assert time.monotonic() - since < 30


class Broken(MemoryStore):
    """Fails every settlement permanently."""

    asked = 0

    async def settle(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise StoreBroken("the file was replaced")


@pytest.mark.fault("F51")
def test_a_broken_store_is_not_asked_again_for_a_whole_lease() -> None:
    store = Broken()
    once = Once(store, lease="1h")
    assert isinstance(once.outcome("order 7", int), Unknown)
    assert store.asked == 1
    once.close()
