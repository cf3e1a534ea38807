"""Locks whose store fails, and invalid calls: on every store, sync and async."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from onceward import ConfigurationError, LeaseLost, Once, PayloadMismatch, StoreUnavailable, current_claim, testing
from onceward.errors import Reentrant
from onceward.protocol.operation_names import LOCK
from onceward.stores import MemoryStore
from tests.clients import SyncClient
from tests.integration.lock_calls import BlockingLock, acquire, locked, try_lock

pytestmark = pytest.mark.mission("C2")


@pytest.mark.fault("F53")
def test_a_claim_whose_reply_was_lost_is_recognised_as_ours(client: SyncClient) -> None:
    with client.store_trouble("claim", times=1, applied=True):
        lock = acquire(client)
    lock.release()


@pytest.mark.fault("F53")
def test_a_release_whose_reply_was_lost_is_repeated(client: SyncClient) -> None:
    lock = acquire(client)
    with client.store_trouble("settle", times=2, applied=True) as failed:
        lock.release()
    assert len(failed) == 2
    assert try_lock(client.another()) is not None


@pytest.mark.fault("F53")
def test_a_release_whose_reply_was_lost_is_no_loss_though_another_has_it_by_now(client: SyncClient) -> None:
    """The repeated release finds the next owner, which acquired the free lock, as the cycle shows: no takeover."""
    lock = acquire(client)
    other = client.another()
    taken: list[BlockingLock] = []
    kind: Any = type(client.once.store)
    original = kind.settle

    async def lost_and_overtaken(store: Any, *args: Any, **kwargs: Any) -> Any:
        kind.settle = original
        await original(store, *args, **kwargs)
        taken.append(client.start(acquire, other).result())
        raise StoreUnavailable("the reply was lost")

    kind.settle = lost_and_overtaken
    try:
        lock.release()
    finally:
        kind.settle = original
    taken[0].check()
    taken[0].release()


@pytest.mark.fault("F43")
def test_an_unanswered_release_that_then_finds_another_owner_is_a_loss_if_that_owner_took_over(
    client: SyncClient,
) -> None:
    """The lease is over by the store's clock but not by the caller's: the same cycle shows the takeover."""
    lock = acquire(client, lease="30s")
    client.clock._now += 31_000_000
    acquire(client.another())
    with client.store_trouble("settle", times=1), pytest.raises(LeaseLost):
        lock.release()


def test_an_unanswered_release_after_the_lease_is_a_loss_though_the_lock_was_acquired_again_since(
    client: SyncClient,
) -> None:
    lock = acquire(client, lease="30s")
    client.clock.advance("31s")
    for _ in range(2):
        acquire(client.another()).release()
    acquire(client.another())
    with client.store_trouble("settle", times=1), pytest.raises(LeaseLost):
        lock.release()


def test_a_store_that_is_down_at_the_release_is_reported_and_the_lock_expires(client: SyncClient) -> None:
    """The caller retries no longer than the lease: after that, the lock is free anyway."""
    patient = client.another(settle_timeout="1h")
    lock = acquire(patient, lease="200ms")
    with client.store_trouble("settle"), pytest.raises(StoreUnavailable):
        lock.release()
    assert patient.leases() == 0
    assert patient.events_named("unknown")
    client.clock.advance("1s")
    assert acquire(client.another()).taken_over


@pytest.mark.fault("F50")
def test_without_a_store_no_caller_gets_the_lock(client: SyncClient) -> None:
    lenient = client.another(on_store_down="run")
    with client.store_trouble("claim"), pytest.raises(StoreUnavailable):
        acquire(lenient)


@pytest.mark.fault("F35")
def test_a_lock_taken_again_inside_its_own_block_is_an_error_and_no_deadlock(client: SyncClient) -> None:
    with locked(client) as outer:
        with pytest.raises(Reentrant, match="already held by the caller"), locked(client):
            pytest.fail("must not enter")
        with pytest.raises(Reentrant):
            try_lock(client)
        with locked(client, "another"):
            outer.check()
    with locked(client):
        pass


def test_locks_may_be_released_in_any_order(client: SyncClient) -> None:
    first, second = acquire(client, "a"), acquire(client, "b")
    first.release()
    second.check()
    again = acquire(client, "a")
    second.release()
    again.release()


def test_a_lock_inside_of_work_is_not_its_claim() -> None:
    """`current_claim` must return the claim of the work, not the lock inside it."""
    once = Once(MemoryStore())

    @once(key="work:{x}")
    def work(x: int) -> str:
        with once.lock("sync"):
            claim = current_claim()
            claim.annotate(step="one")
        return claim.key

    assert work(5) == "work:5"
    once.close()


@pytest.mark.fault("F18")
def test_a_key_is_a_lock_or_work_but_never_both(client: SyncClient) -> None:
    with client.claim("sync", name=LOCK, payload="work"), pytest.raises(PayloadMismatch, match="is not a lock"):
        acquire(client.another(), wait=0)
    with locked(client, "other"), pytest.raises(PayloadMismatch), client.claim("other", name=LOCK, payload="work"):
        pytest.fail("must not enter")


@pytest.mark.parametrize("fails", [0, 1], ids=["done", "failed"])
def test_a_lock_never_wipes_out_work_without_a_payload_that_has_its_name(client: SyncClient, fails: int) -> None:
    """Only the mark of a lock distinguishes the two: no clock was set back here, the work uses the key."""
    with contextlib.suppress(ZeroDivisionError), client.claim("sync", name=LOCK, final=(ZeroDivisionError,)):
        assert 1 // (1 - fails)
    before = client.read("sync", name=LOCK).record
    with pytest.raises(PayloadMismatch, match="is not a lock"), locked(client, "sync"):
        pytest.fail("it was locked")
    assert client.read("sync", name=LOCK).record == before


@pytest.mark.fault("F46")
def test_a_lease_that_cannot_work_and_a_name_that_names_nothing_are_refused(client: SyncClient) -> None:
    with pytest.raises(ConfigurationError, match="lease"):
        acquire(client, lease=0)
    for nothing in ("", None, ()):
        with pytest.raises(ConfigurationError):
            acquire(client, nothing)


def test_while_onceward_is_disabled_a_lock_locks_nothing(client: SyncClient) -> None:
    with testing.disabled(), locked(client) as lock:
        lock.check()
        assert try_lock(client) is not None
        assert client.read("sync", name=LOCK) is None


def test_events_report_which_lock_was_acquired_and_released(client: SyncClient) -> None:
    with locked(client):
        try_lock(client.another())
    events = [(event.name, event.key, event.scope) for event in client.events]
    assert events == [("acquired", "sync", "default/lock"), ("released", "sync", "default/lock")]
