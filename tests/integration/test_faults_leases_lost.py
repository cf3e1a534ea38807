"""Work whose lease is overdue or lost is notified or cancelled; the code that follows it never is."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

from onceward import AsyncOnce, LeaseLost, Once, Unknown, current_async_claim
from onceward.errors import LeaseOverdue
from onceward.protocol.ports import Store
from onceward.testing.clock import FakeClock
from tests.cli.calls import until
from tests.clients import TOO_LONG, SyncClient
from tests.faulty import FaultyNetwork, FaultyStore
from tests.heartbeats import stop_renewing
from tests.integration.faulty_clients import network, store
from tests.integration.processes import elsewhere

__all__ = ["network", "store"]  # fixtures, listed here so that pytest finds them


@pytest.mark.fault("F45", "F32")
def test_a_store_that_is_silent_beyond_the_lease_makes_the_claim_overdue_and_it_recovers(
    store: Store, network: FaultyNetwork
) -> None:
    with Once(store, lease="1s") as once:
        event_names: list[str] = []
        once.subscribe(lambda event: event_names.append(event.name))
        network.lose_requests("renew")
        with once.claim("order 7") as claim:
            claim.check()
            until(lambda: "overdue" in event_names)
            with pytest.raises(LeaseOverdue):
                claim.check()
            network.heal()
            until(lambda: "renewed" in event_names)
            claim.check()
            claim.complete("done")
        assert "lost" not in event_names


@pytest.mark.fault("F41")
def test_the_next_heartbeat_notifies_work_that_was_taken_over(client: SyncClient) -> None:
    claim = client.silent_owner("order 7", lease="10m")
    client.clock.advance("11m")
    with pytest.raises(LeaseOverdue):
        claim.check()
    with client.another().claim("order 7"):
        client.renew_leases()
        with pytest.raises(LeaseLost) as lost:
            claim.check()
        assert type(lost.value) is LeaseLost
    assert len(client.events_named("lost")) == 1


async def lose(once: AsyncOnce, clock: FakeClock, store: Store, key: Any) -> None:
    """Let another worker take the key over, and let the heartbeat notice it."""
    clock.advance("11m")
    other = AsyncOnce(store)
    await asyncio.create_task(other.claim(key).__aenter__(), context=contextvars.Context())
    await asyncio.to_thread(tick_late, once)
    await asyncio.to_thread(other.heartbeat.close)


def tick_late(once: AsyncOnce) -> None:
    once.heartbeat.monotonic = lambda: time.monotonic() + 660
    once.heartbeat.tick()


@pytest.mark.fault("F41")
@pytest.mark.rival(8)
async def test_with_on_lost_cancel_the_task_is_cancelled_and_its_outcome_is_lost(
    store: Store, clock: FakeClock
) -> None:
    async with AsyncOnce(store, on_lost="cancel") as once:
        begun = asyncio.Event()
        steps: list[str] = []

        async def slow() -> str:
            begun.set()
            steps.append("begun")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                steps.append("cancelled")
                raise
            return "late"

        async def call() -> Any:
            outcome = await once.outcome("order 7", slow)
            await asyncio.sleep(0)  # a pending cancellation would be raised here
            return outcome

        task = asyncio.create_task(call())
        await begun.wait()
        await lose(once, clock, store, once.key("order 7"))
        outcome = await asyncio.wait_for(task, TOO_LONG)
        assert steps == ["begun", "cancelled"]
        assert isinstance(outcome, Unknown)
        assert outcome.lost
        assert task.cancelling() == 0
        with pytest.raises(LeaseLost):
            outcome.unwrap()


@pytest.mark.fault("F41")
async def test_with_on_lost_cancel_a_block_is_cancelled_and_raises_that_it_lost(store: Store, clock: FakeClock) -> None:
    async with AsyncOnce(store) as once:
        begun = asyncio.Event()

        async def block() -> None:
            async with once.claim("order 7", on_lost="cancel"):
                begun.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(block())
        await begun.wait()
        await lose(once, clock, store, once.key("order 7"))
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(task, TOO_LONG)
        assert task.cancelling() == 0


@pytest.mark.fault("F28", "F41")
async def test_a_cancellation_of_the_users_own_is_not_swallowed_with_the_one_for_the_lost_lease(
    store: Store, clock: FakeClock
) -> None:
    async with AsyncOnce(store, on_lost="cancel") as once:
        begun = asyncio.Event()

        async def slow() -> None:
            begun.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(once.run("order 7", slow))
        await begun.wait()
        await asyncio.to_thread(lambda: None)
        clock.advance("11m")
        other = AsyncOnce(store)
        key = once.key("order 7")
        await asyncio.create_task(other.claim(key).__aenter__(), context=contextvars.Context())
        heartbeat = asyncio.get_running_loop().run_in_executor(None, tick_late, once)
        while once.heartbeat.held():
            time.sleep(0.001)  # noqa: ASYNC251 (the loop must not run yet: both cancellations arrive together)
        task.cancel()
        await heartbeat
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        await asyncio.to_thread(other.heartbeat.close)


@pytest.mark.fault("F41")
async def test_a_task_that_lost_its_lease_after_its_work_was_done_is_not_cancelled(
    store: Store, clock: FakeClock
) -> None:
    """The heartbeat may notice it a moment too late; it must not cancel whatever the task does next."""
    async with AsyncOnce(store, on_lost="cancel") as once:

        async def blocking() -> str:
            key = once.key("order 7")
            clock.advance("11m")
            worker = threading.Thread(target=elsewhere, args=(lambda: takes_over(key),))
            worker.start()
            worker.join(TOO_LONG)  # the loop is blocked: the cancellation is scheduled, but cannot be delivered yet
            assert not once.heartbeat.held()
            return "late"

        def takes_over(key: Any) -> None:
            with Once(store.clone()) as other:
                other.claim(key).__enter__()
                tick_late(once)
                stop_renewing(other.heartbeat)

        outcome = await once.outcome("order 7", blocking)
        assert isinstance(outcome, Unknown)
        assert outcome.lost
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.fault("F41")
async def test_without_on_lost_cancel_the_work_continues_and_checks_for_itself(store: Store, clock: FakeClock) -> None:
    async with AsyncOnce(store) as once:
        begun, go = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            begun.set()
            await go.wait()
            with pytest.raises(LeaseLost):
                current_async_claim().check()
            return "late"

        task = asyncio.create_task(once.outcome("order 7", slow))
        await begun.wait()
        await lose(once, clock, store, once.key("order 7"))
        go.set()
        outcome = await task
        assert isinstance(outcome, Unknown)
        assert (outcome.lost, outcome.value) == (True, "late")


def test_these_tests_use_the_faulty_network(store: Store) -> None:
    assert isinstance(store, FaultyStore)
