"""Locks, on every store and in both colours: Mission C2. Taking, giving up, waiting."""

from __future__ import annotations

import contextvars
import time
from typing import Any

import pytest

from onceward import AlreadyRunning, RecordState
from onceward.errors import ClaimError, StillRunning
from onceward.protocol.ports import Filter
from tests.faces import Face, nothing_at_once
from tests.integration.lock_calls import acquire, locked, record_of, try_lock

pytestmark = pytest.mark.mission("C2")


# ── taking and giving up ──


def test_a_lock_is_taken_by_one_and_free_at_once_when_that_one_releases_it(face: Face) -> None:
    other = face.another()
    held = acquire(face)
    assert try_lock(other) is None
    held.release()
    taken = try_lock(other)
    assert taken is not None
    taken.release()
    assert face.leases() == other.leases() == 0


def test_a_block_releases_its_lock_however_it_ends(face: Face) -> None:
    with locked(face) as lock:
        assert lock.held
        lock.check()
    with pytest.raises(KeyError), locked(face):
        raise KeyError("the block failed")
    with pytest.raises(KeyboardInterrupt), locked(face):
        raise KeyboardInterrupt
    assert try_lock(face.another()) is not None


def test_what_try_lock_gives_is_a_block_too(face: Face) -> None:
    other = face.another()
    taken = face._wait(face.once.try_lock("sync"))
    context = contextvars.copy_context()
    face._enter(taken, context)
    assert try_lock(other) is None
    face._leave(taken, context, None)
    assert try_lock(other) is not None


def test_a_failed_block_is_no_failed_attempt_and_leaves_nothing_but_a_free_lock(face: Face) -> None:
    for _ in range(3):
        with pytest.raises(ValueError, match="oops"), locked(face):
            raise ValueError("oops")
    with locked(face):
        record = record_of(face)
        assert (record.attempt, record.error_type, record.state) == (1, "", RecordState.PENDING)


def test_many_acquisitions_leave_one_record_and_a_token_that_strictly_grows(face: Face) -> None:
    """Also on a clock that stands still, where only the token before can make the next one larger."""
    tokens, cycles = [], []
    for _ in range(60):
        with locked(face) as lock:
            tokens.append(lock.token)
            cycles.append(record_of(face).cycle)
    assert tokens == sorted(set(tokens))
    assert cycles == tokens  # nobody's derived keys are anybody else's
    page = face.drive(face.once.store.scan(Filter(), cursor=None, limit=10, timeout=5))
    (record,) = page.records
    assert len(record.note) == len(record.arguments) == 0
    assert record.result is None
    if face.place.kind == "memory":
        assert len(face.place._memory._ending) <= 2 + 64  # what it remembers of the past is bounded
    face.clock.advance("2h")
    assert face.purge() == 1


def test_a_lock_that_nobody_else_wants_costs_one_claim_and_one_settlement(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(face):
        pass  # opened
    asked: list[str] = []
    kind: Any = type(face.once.store)
    for verb in ("claim", "settle", "read", "forget", "renew"):
        sound = getattr(kind, verb)

        def counted(store: Any, *args: Any, verb: str = verb, sound: Any = sound, **how: Any) -> Any:
            asked.append(verb)
            return sound(store, *args, **how)

        monkeypatch.setattr(kind, verb, counted)
    with nothing_at_once(), locked(face) as lock:
        lock.check()
    assert asked == ["claim", "settle"]


def test_a_client_that_keeps_results_at_hand_keeps_no_locks(face: Face) -> None:
    cached = face.another(cache=10)
    for _ in range(3):
        with locked(cached):
            assert try_lock(face) is None
        with locked(face):
            assert try_lock(cached) is None


def test_names_are_apart_and_so_are_apps_and_tenants(face: Face) -> None:
    acquire(face)
    assert try_lock(face, "other") is not None
    assert try_lock(face, ("sync", 1)) is not None
    assert try_lock(face.another(app="shop")) is not None
    assert try_lock(face.another(tenant="acme")) is not None
    assert try_lock(face.another()) is None


def test_release_may_be_called_again(face: Face) -> None:
    held = acquire(face)
    held.release()
    other = acquire(face.another())
    held.release()
    other.check()
    other.release()


def test_a_lock_that_was_released_is_not_checked_and_not_entered(face: Face) -> None:
    held = acquire(face)
    held.release()
    assert not held.held
    with pytest.raises(ClaimError, match="was released"):
        held.check()
    with pytest.raises(ClaimError, match="not held any more"):
        face._enter(held._lock, contextvars.copy_context())


# ── waiting ──


def test_whoever_waits_gets_the_lock_as_soon_as_it_is_free(face: Face) -> None:
    held = acquire(face)
    waiting = face.start(acquire, face.another(), "sync")
    time.sleep(0.05)
    assert not waiting.done()
    held.release()
    waiting.result().release()


def test_a_wait_ends_at_its_deadline_with_an_error_that_names_the_owner_and_the_time_left(face: Face) -> None:
    acquire(face, lease="30s")
    other = face.another()
    with pytest.raises(StillRunning) as told:
        acquire(other, wait="20ms")
    assert told.value.key == "sync"
    assert told.value.retry_after == pytest.approx(30, abs=1)
    with pytest.raises(AlreadyRunning) as at_once:
        acquire(other, wait=0)
    assert not isinstance(at_once.value, StillRunning)


def test_the_wait_of_the_client_holds_unless_the_lock_has_its_own(face: Face) -> None:
    acquire(face)
    impatient = face.another(on_running="raise")
    with pytest.raises(AlreadyRunning):
        acquire(impatient)
    with pytest.raises(StillRunning):
        acquire(impatient, wait="20ms")
    with pytest.raises(StillRunning):
        acquire(face.another(wait="20ms"))


def test_of_eight_that_want_it_each_has_it_alone(face: Face) -> None:
    """The counter that the lock protects is deliberately not atomic."""
    counter = [0]
    workers = [face, face.another()]
    turn = iter(range(16))

    def work() -> None:
        with locked(workers[next(turn) % 2]):
            seen = counter[0]
            time.sleep(0.001)
            counter[0] = seen + 1

    for _ in range(2):
        assert face.together(8, work) == [None] * 8
    assert counter == [16]


def test_one_lock_object_serves_many_threads_and_tasks(face: Face) -> None:
    """As people know it from threading.Lock: made once for a module, entered by whoever comes."""
    shared = face.once.lock("sync")
    counter = [0]

    def work() -> None:
        with locked(face, block=shared):
            seen = counter[0]
            time.sleep(0.001)
            counter[0] = seen + 1

    assert face.together(6, work) == [None] * 6
    assert counter == [6]
