"""Locks whose store gives out, and calls that make no sense: on every store and in both colours."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from onceward import ConfigurationError, LeaseLost, Once, PayloadMismatch, StoreUnavailable, current_claim, testing
from onceward.errors import Reentrant
from onceward.protocol.operation_names import LOCK
from onceward.stores import MemoryStore
from tests.clients import SyncClient, inline_answers_disabled
from tests.integration.lock_calls import BlockingLock, acquire, locked, try_lock

pytestmark = pytest.mark.mission("C2")


@pytest.mark.fault("F53")
def test_a_claim_whose_reply_was_lost_is_recognised_as_ours(client: SyncClient) -> None:
    with client.store_trouble("claim", times=1, applied=True):
        held = acquire(client)
    held.release()


@pytest.mark.fault("F53")
def test_a_release_whose_reply_was_lost_is_repeated(client: SyncClient) -> None:
    held = acquire(client)
    with client.store_trouble("settle", times=2, applied=True) as failed:
        held.release()
    assert len(failed) == 2
    assert try_lock(client.another()) is not None


@pytest.mark.fault("F53")
def test_a_release_whose_reply_was_lost_is_no_loss_though_another_has_it_by_now(client: SyncClient) -> None:
    """The repeated release meets the next owner. That one came after us, as the cycle shows, not over us."""
    held = acquire(client)
    other = client.another()
    taken: list[BlockingLock] = []
    kind: Any = type(client.once.store)
    sound = kind.settle

    async def lost_and_overtaken(store: Any, *args: Any, **kwargs: Any) -> Any:
        kind.settle = sound
        await sound(store, *args, **kwargs)
        taken.append(client.start(acquire, other).result())
        raise StoreUnavailable("the reply was lost")

    kind.settle = lost_and_overtaken
    try:
        with inline_answers_disabled():
            held.release()
    finally:
        kind.settle = sound
    taken[0].check()
    taken[0].release()


@pytest.mark.fault("F43")
def test_an_unanswered_release_that_then_finds_another_owner_is_a_loss_if_that_one_came_over_us(
    client: SyncClient,
) -> None:
    """By our own clock the lease is not over, by the store's it is: the same cycle tells that we were replaced."""
    held = acquire(client, lease="30s")
    client.clock._now += 31_000_000
    acquire(client.another())
    with client.store_trouble("settle", times=1), pytest.raises(LeaseLost):
        held.release()


def test_an_unanswered_release_after_the_lease_is_a_loss_though_the_lock_has_had_other_lives_since(
    client: SyncClient,
) -> None:
    held = acquire(client, lease="30s")
    client.clock.advance("31s")
    for _ in range(2):
        acquire(client.another()).release()
    acquire(client.another())
    with client.store_trouble("settle", times=1), pytest.raises(LeaseLost):
        held.release()


def test_a_store_that_is_down_at_the_release_is_told_and_the_lock_frees_itself(client: SyncClient) -> None:
    """Nobody is kept for longer than the lease: from then on the lock is free anyway."""
    patient = client.another(settle_timeout="1h")
    held = acquire(patient, lease="200ms")
    with client.store_trouble("settle"), pytest.raises(StoreUnavailable):
        held.release()
    assert patient.leases() == 0
    assert patient.events_named("unknown")
    client.clock.advance("1s")
    assert acquire(client.another()).taken_over


@pytest.mark.fault("F50")
def test_without_a_store_nobody_has_the_lock(client: SyncClient) -> None:
    lenient = client.another(on_store_down="run")
    with client.store_trouble("claim"), pytest.raises(StoreUnavailable):
        acquire(lenient)


@pytest.mark.fault("F35")
def test_a_lock_taken_again_inside_its_own_block_is_an_error_and_no_deadlock(client: SyncClient) -> None:
    with locked(client) as outer:
        with pytest.raises(Reentrant, match="already held by the caller"), locked(client):
            pytest.fail("nobody gets here")
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
    """What completes or annotates the current claim must not meet the lock around it."""
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
        pytest.fail("nobody gets here")


@pytest.mark.parametrize("fails", [0, 1], ids=["done", "failed"])
def test_a_lock_never_wipes_out_work_without_a_payload_that_has_its_name(client: SyncClient, fails: int) -> None:
    """Nothing tells the two apart but the mark of a lock: here no clock was set back, the work is in its way."""
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


def test_events_tell_who_took_and_gave_up_a_lock(client: SyncClient) -> None:
    with locked(client):
        try_lock(client.another())
    told = [(event.name, event.key, event.scope) for event in client.events]
    assert told == [("acquired", "sync", "default/lock"), ("released", "sync", "default/lock")]
