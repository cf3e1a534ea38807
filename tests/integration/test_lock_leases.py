"""Locks and their leases, on every store, sync and async: what a lock with a lease can and cannot guarantee."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from onceward import LeaseLost, Once, RecordState
from onceward.errors import LeaseOverdue
from tests.clients import Backend, SyncClient
from tests.integration.lock_calls import acquire, locked, record_of, try_lock

pytestmark = pytest.mark.mission("C2")


@pytest.mark.rival(27)
def test_the_heartbeat_renews_a_lock_while_its_block_runs_and_nothing_reaps_it(client: SyncClient) -> None:
    lock = acquire(client, lease="30s")
    other = client.another()
    for _ in range(20):
        client.clock.advance("10s")
        client.renew_leases()
        assert try_lock(other) is None
        assert other.purge() == 0
    lock.check()
    lock.release()


@pytest.mark.fault("F40", "F41")
def test_a_silent_owner_is_replaced_after_its_lease_and_its_late_release_frees_no_other_lock(
    client: SyncClient,
) -> None:
    late = acquire(client, lease="30s")
    client.clock.advance("31s")
    owner = acquire(client.another(), lease="30s")
    assert owner.taken_over
    assert owner.token > late.token
    with pytest.raises(LeaseLost, match="did not run alone"):
        late.release()
    owner.check()
    assert try_lock(client.another()) is None
    owner.release()
    assert [event.reason for event in client.events_named("lost")] == ["release refused"]
    with locked(client) as lock:
        assert not lock.taken_over, "the crash is over once its successor has released"


def test_an_owner_that_was_silent_but_not_replaced_was_alone_and_may_release(client: SyncClient) -> None:
    late = acquire(client, lease="30s")
    client.clock.advance("5m")
    with pytest.raises(LeaseOverdue):
        late.check()
    late.release()
    assert try_lock(client.another()) is not None


def test_check_raises_once_the_heartbeat_has_seen_another_owner(client: SyncClient) -> None:
    late = acquire(client, lease="30s")
    client.clock.advance("31s")
    acquire(client.another())
    client.renew_leases()
    assert not late.held
    with pytest.raises(LeaseLost):
        late.check()


def test_a_resource_that_remembers_the_highest_token_refuses_the_late_owner(client: SyncClient) -> None:
    highest = [0]

    def write(token: int) -> bool:
        fresh = token >= highest[0]
        highest[0] = max(highest[0], token)
        return fresh

    late = acquire(client, lease="30s")
    client.clock.advance("31s")
    owner = acquire(client.another())
    assert write(owner.token)
    assert not write(late.token)


def test_the_error_of_a_block_propagates_and_says_that_the_lock_was_lost_too(client: SyncClient) -> None:
    with pytest.raises(ValueError, match="half written") as caught, locked(client, lease="30s"):
        client.clock.advance("31s")
        acquire(client.another())
        raise ValueError("half written")
    assert any("another owner" in note for note in caught.value.__notes__)


def test_a_client_that_parks_after_crashes_still_takes_over_its_locks(client: SyncClient) -> None:
    strict = client.another(after_crash="park", max_attempts=1)
    acquire(strict, lease="30s")
    client.clock.advance("31s")
    assert acquire(strict).taken_over


def test_a_free_lock_is_free_whatever_the_clock_says(client: SyncClient) -> None:
    """The record's window ended immediately. On a clock that was set back, its end is in the future."""
    with locked(client) as lock:
        before = lock.token
    client.clock.set_back("30m")
    with locked(client.another()) as lock:
        assert lock.token > before
    client.clock.set_back("10m")
    after = try_lock(client)
    assert after is not None
    assert after.token > before


def test_a_lock_given_back_after_a_takeover_is_free_whatever_the_clock_says(client: SyncClient) -> None:
    acquire(client, lease="30s")
    client.clock.advance("31s")
    other = client.another()
    with pytest.raises(KeyboardInterrupt):
        interrupted(other)
    assert record_of(client).state is RecordState.FAILED
    client.clock.set_back("30s")
    acquire(other).release()


@pytest.mark.fault("F27")
def test_a_lock_that_was_dropped_is_no_longer_renewed(backend: Backend) -> None:
    with Once(backend.open(), lease="1h") as once:
        kept, dropped = once.lock("kept").acquire(), once.lock("dropped").acquire()
        assert len(once.heartbeat.held()) == 2
        del dropped
        gc.collect()
        assert len(once.heartbeat.held()) == 1
        kept.release()


def interrupted(client: SyncClient) -> None:
    """Acquire the lock, interrupted by a signal after the grant but before the holder knows about it."""
    heartbeat = client.heartbeat
    take = heartbeat.take

    def interrupt(*args: Any) -> Any:
        raise KeyboardInterrupt

    heartbeat.take = interrupt
    try:
        acquire(client)
    finally:
        heartbeat.take = take
