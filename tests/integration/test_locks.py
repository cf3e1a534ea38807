"""Locks on every store, sync and async: Mission C2. Acquire, release, wait."""

from __future__ import annotations

import contextvars
import time
from typing import Any

import pytest

from onceward import AlreadyRunning, RecordState
from onceward.errors import ClaimError, StillRunning
from onceward.protocol.ports import Filter
from tests.clients import SyncClient
from tests.integration.lock_calls import acquire, locked, record_of, try_lock
from tests.raw_memory import expiry_entries_of

pytestmark = pytest.mark.mission("C2")


# ── acquire and release ──


def test_a_lock_has_one_owner_and_is_free_immediately_after_its_release(client: SyncClient) -> None:
    other = client.another()
    lock = acquire(client)
    assert try_lock(other) is None
    lock.release()
    taken = try_lock(other)
    assert taken is not None
    taken.release()
    assert client.leases() == other.leases() == 0


def test_a_block_releases_its_lock_however_it_ends(client: SyncClient) -> None:
    with locked(client) as lock:
        assert lock.held
        lock.check()
    with pytest.raises(KeyError), locked(client):
        raise KeyError("the block failed")
    with pytest.raises(KeyboardInterrupt), locked(client):
        raise KeyboardInterrupt
    assert try_lock(client.another()) is not None


def test_what_try_lock_gives_is_a_block_too(client: SyncClient) -> None:
    other = client.another()
    taken = client.wait(client.once.try_lock("sync"))
    context = contextvars.copy_context()
    client.enter(taken, context)
    assert try_lock(other) is None
    client.leave(taken, context, None)
    assert try_lock(other) is not None


def test_a_failed_block_is_no_failed_attempt_and_leaves_nothing_but_a_free_lock(client: SyncClient) -> None:
    for _ in range(3):
        with pytest.raises(ValueError, match="oops"), locked(client):
            raise ValueError("oops")
    with locked(client):
        record = record_of(client)
        assert (record.attempt, record.error_type, record.state) == (1, "", RecordState.PENDING)


def test_many_acquisitions_leave_one_record_and_a_token_that_strictly_grows(client: SyncClient) -> None:
    """Also on a clock that does not move, where only the previous token makes the next one larger."""
    tokens, cycles = [], []
    for _ in range(60):
        with locked(client) as lock:
            tokens.append(lock.token)
            cycles.append(record_of(client).cycle)
    assert tokens == sorted(set(tokens))
    assert cycles == tokens  # so no two acquisitions share derived keys
    page = client.drive(client.once.store.scan(Filter(), cursor=None, limit=10, timeout=5))
    (record,) = page.records
    assert len(record.note) == len(record.arguments) == 0
    assert record.result is None
    if client.backend.kind == "memory":
        assert expiry_entries_of(client.backend.open()) <= 2 + 64  # the expiry heap is bounded
    client.clock.advance("2h")
    assert client.purge() == 1


def test_an_uncontended_lock_costs_one_claim_and_one_settlement(
    client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(client):
        pass  # opened
    asked: list[str] = []
    kind: Any = type(client.once.store)
    for verb in ("claim", "settle", "read", "forget", "renew"):
        original = getattr(kind, verb)

        def counted(store: Any, *args: Any, verb: str = verb, original: Any = original, **how: Any) -> Any:
            asked.append(verb)
            return original(store, *args, **how)

        monkeypatch.setattr(kind, verb, counted)
    with locked(client) as lock:
        lock.check()
    assert asked == ["claim", "settle"]


def test_a_client_with_a_cache_does_not_cache_locks(client: SyncClient) -> None:
    cached = client.another(cache=10)
    for _ in range(3):
        with locked(cached):
            assert try_lock(client) is None
        with locked(client):
            assert try_lock(cached) is None


def test_locks_of_different_names_apps_and_tenants_are_independent(client: SyncClient) -> None:
    acquire(client)
    assert try_lock(client, "other") is not None
    assert try_lock(client, ("sync", 1)) is not None
    assert try_lock(client.another(app="shop")) is not None
    assert try_lock(client.another(tenant="acme")) is not None
    assert try_lock(client.another()) is None


def test_release_may_be_called_again(client: SyncClient) -> None:
    lock = acquire(client)
    lock.release()
    other = acquire(client.another())
    lock.release()
    other.check()
    other.release()


def test_a_lock_that_was_released_is_not_checked_and_not_entered(client: SyncClient) -> None:
    lock = acquire(client)
    lock.release()
    assert not lock.held
    with pytest.raises(ClaimError, match="was released"):
        lock.check()
    with pytest.raises(ClaimError, match="no longer held"):
        client.enter(lock.lock, contextvars.copy_context())


# ── wait ──


def test_a_waiting_caller_gets_the_lock_as_soon_as_it_is_free(client: SyncClient) -> None:
    lock = acquire(client)
    waiting = client.start(acquire, client.another(), "sync")
    time.sleep(0.05)
    assert not waiting.done()
    lock.release()
    waiting.result().release()


def test_a_wait_ends_at_its_deadline_with_an_error_that_names_the_owner_and_the_time_left(client: SyncClient) -> None:
    acquire(client, lease="30s")
    other = client.another()
    with pytest.raises(StillRunning) as caught:
        acquire(other, wait="20ms")
    assert caught.value.key == "sync"
    assert caught.value.retry_after == pytest.approx(30, abs=15)
    with pytest.raises(AlreadyRunning) as immediate:
        acquire(other, wait=0)
    assert not isinstance(immediate.value, StillRunning)


def test_the_wait_of_the_client_applies_unless_the_lock_has_its_own(client: SyncClient) -> None:
    acquire(client)
    impatient = client.another(on_running="raise")
    with pytest.raises(AlreadyRunning):
        acquire(impatient)
    with pytest.raises(StillRunning):
        acquire(impatient, wait="20ms")
    with pytest.raises(StillRunning):
        acquire(client.another(wait="20ms"))


def test_each_of_eight_callers_holds_the_lock_alone(client: SyncClient) -> None:
    """The counter that the lock protects is deliberately not atomic."""
    counter = [0]
    workers = [client, client.another()]
    turn = iter(range(16))

    def work() -> None:
        with locked(workers[next(turn) % 2]):
            seen = counter[0]
            time.sleep(0.001)
            counter[0] = seen + 1

    for _ in range(2):
        assert client.together(8, work) == [None] * 8
    assert counter == [16]


def test_one_lock_object_serves_many_threads_and_tasks(client: SyncClient) -> None:
    """As with threading.Lock: created once for a module, entered by any thread or task."""
    shared = client.once.lock("sync")
    counter = [0]

    def work() -> None:
        with locked(client, block=shared):
            seen = counter[0]
            time.sleep(0.001)
            counter[0] = seen + 1

    assert client.together(6, work) == [None] * 6
    assert counter == [6]
