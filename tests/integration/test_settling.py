"""How a claim ends when the store, the caller or a lost lease interferes with its settlement."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from onceward import AsyncOnce, Once, Unknown, applied, current_async_claim, not_applied, verify
from onceward.errors import Reentrant
from onceward.observe import Event
from onceward.stores.sqlite import SQLiteStore
from tests.clients import SyncClient
from tests.faulty import FaultyNetwork, FaultyStore


@pytest.mark.fault("F28", "F51")
async def test_a_cancelled_caller_is_not_kept_for_the_whole_settle_timeout(tmp_path: Path) -> None:
    """Five minutes of lease, and the store is down: the cancellation propagates after one more try."""
    network = FaultyNetwork()
    once = AsyncOnce(FaultyStore(SQLiteStore(tmp_path / "once.db"), network), lease="300s")
    events: list[str] = []
    retried = asyncio.Event()

    def listen(event: Event) -> None:
        events.append(event.name)
        if event.name == "settle_retried":
            retried.set()

    once.subscribe(listen)

    async def work() -> None:
        network.lose_requests("settle")

    task = asyncio.create_task(once.run("order 7", work))
    await retried.wait()
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 60  # one call's time (5 s) and a pause, not the lease
    assert "unknown" in events
    await once.close(timeout=0)


@pytest.mark.fault("F35")
async def test_a_key_claimed_by_the_sync_client_is_reentrant_for_its_async_client(tmp_path: Path) -> None:
    """The sync and async side of one client have two connections, but they are one owner."""
    once = Once(f"sqlite:///{tmp_path}/once.db", wait="5s")

    @once(name="outer", key="{order}")
    async def outer(order: str) -> None:
        await asyncio.to_thread(inner, order)

    @once(name="outer", key="{order}")
    def inner(order: str) -> None:
        raise AssertionError("must not run")

    with pytest.raises(Reentrant):
        await outer("7")
    await asyncio.to_thread(once.close)


@pytest.mark.fault("F41")
def test_a_verify_result_is_not_recorded_by_a_replaced_owner_and_that_is_an_outcome(client: SyncClient) -> None:
    """While `find` runs, another worker takes over: `.outcome()` still returns a value, not an exception."""
    other = client.another()

    def find() -> object:
        client.clock.advance("1h")
        other.silent_owner("order 7", after_crash=verify(lambda: not_applied))
        return applied("by us")

    client.silent_owner("order 7", after_crash=verify(lambda: None))
    client.clock.advance("1h")
    asking = client.another(after_crash=verify(find))
    outcome = asking.outcome("order 7", lambda: "must not run")
    assert isinstance(outcome, Unknown)
    assert outcome.lost


@pytest.mark.mission("A5")
async def test_the_claim_of_the_async_client_is_found_inside_its_function(tmp_path: Path) -> None:
    once = AsyncOnce(f"sqlite:///{tmp_path}/once.db")

    @once(key="{order}")
    async def charge(order: str) -> str:
        return current_async_claim().derived_key(order)

    assert (await charge("7")).startswith("ow_")
    await once.close()


@pytest.mark.fault("F27", "F51")
def test_an_interrupt_while_the_store_is_down_comes_through_without_waiting_out_the_lease(tmp_path: Path) -> None:
    """Ctrl-C during the repeated settlement: two more calls, not ten more minutes."""
    network = FaultyNetwork()
    once = Once(FaultyStore(SQLiteStore(tmp_path / "once.db"), network), lease="300s")

    def interrupt(event: Event) -> None:
        if event.name == "settle_retried" and network.calls["settle"] == 3:
            raise KeyboardInterrupt  # as a signal would, in the middle of our own code

    once.subscribe(interrupt)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        once.run("order 7", lambda: network.lose_requests("settle"))
    assert time.monotonic() - began < 30
    once.close(timeout=0)
