"""Locks, on every store and in both colours: Mission C2, and what a lease lock can and cannot promise."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AlreadyRunning,
    AsyncOnce,
    ClaimError,
    ConfigurationError,
    LeaseLost,
    LeaseOverdue,
    MemoryStore,
    Once,
    OncewardWarning,
    PayloadMismatch,
    Reentrant,
    Replayed,
    Running,
    State,
    StillRunning,
    StoreUnavailable,
    current_claim,
    testing,
)
from onceward.model.lock import OPERATION
from onceward.model.record import Record
from onceward.ports import Filter
from onceward.testing.clock import FakeClock
from tests.cli.calls import until
from tests.faces import TOO_LONG, Face, Place, nothing_at_once

pytestmark = pytest.mark.mission("C2")


class Owned:
    """A lock of either colour that is held, called as blocking code."""

    def __init__(self, face: Face, lock: Any) -> None:
        self._face = face
        self._lock = lock

    def release(self) -> None:
        self._face._wait(self._lock.release())

    def __getattr__(self, name: str) -> Any:  # token, taken_over, held, name, check: never awaited
        return getattr(self._lock, name)


def acquire(face: Face, name: Any = "sync", **settings: Any) -> Owned:
    """Held by whoever calls this, in a context of its own: as another process would."""
    lock = face.once.lock(name, **settings)
    if face.colour == "blocking":
        return Owned(face, contextvars.Context().run(lock.acquire))
    return Owned(face, face._wait(lock.acquire()))


def try_lock(face: Face, name: Any = "sync", **settings: Any) -> Owned | None:
    lock = face._wait(face.once.try_lock(name, **settings))
    return None if lock is None else Owned(face, lock)


@contextlib.contextmanager
def locked(face: Face, name: Any = "sync", *, block: Any = None, **settings: Any) -> Iterator[Any]:
    """The block of a lock."""
    block = block or face.once.lock(name, **settings)
    context = contextvars.copy_context()
    lock = face._enter(block, context)
    variables = [(variable, variable.set(value)) for variable, value in context.items()]
    try:
        yield Owned(face, lock)
    except BaseException as error:
        face._leave(block, context, error)
        raise
    else:
        face._leave(block, context, None)
    finally:
        for variable, token in variables:
            variable.reset(token)


def record_of(face: Face, name: Any = "sync") -> Record:
    entry = face.read(name, name=OPERATION)
    record: Record = entry.record
    return record


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
        assert (record.attempt, record.error_type, record.state) == (1, "", State.PENDING)


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


# ── leases and fencing ──


@pytest.mark.rival(27)
def test_the_keeper_renews_a_lock_while_its_block_runs_and_nothing_reaps_it(face: Face) -> None:
    held = acquire(face, lease="30s")
    other = face.another()
    for _ in range(20):
        face.clock.advance("10s")
        face.heartbeat()
        assert try_lock(other) is None
        assert other.purge() == 0
    held.check()
    held.release()


@pytest.mark.fault("F40", "F41")
def test_a_silent_owner_is_replaced_after_its_lease_and_its_late_release_frees_nobody_elses(face: Face) -> None:
    late = acquire(face, lease="30s")
    face.clock.advance("31s")
    owner = acquire(face.another(), lease="30s")
    assert owner.taken_over
    assert owner.token > late.token
    with pytest.raises(LeaseLost, match="was not alone"):
        late.release()
    owner.check()
    assert try_lock(face.another()) is None
    owner.release()
    assert [event.reason for event in face.told("lost")] == ["release refused"]
    with locked(face) as lock:
        assert not lock.taken_over, "the crash is over once its successor has released"


def test_an_owner_that_was_silent_but_not_replaced_was_alone_and_may_release(face: Face) -> None:
    late = acquire(face, lease="30s")
    face.clock.advance("5m")
    with pytest.raises(LeaseOverdue):
        late.check()
    late.release()
    assert try_lock(face.another()) is not None


def test_check_raises_once_the_keeper_has_seen_another_owner(face: Face) -> None:
    late = acquire(face, lease="30s")
    face.clock.advance("31s")
    acquire(face.another())
    face.heartbeat()
    assert not late.held
    with pytest.raises(LeaseLost):
        late.check()


def test_a_resource_that_remembers_the_highest_token_refuses_the_late_owner(face: Face) -> None:
    highest = [0]

    def write(token: int) -> bool:
        fresh = token >= highest[0]
        highest[0] = max(highest[0], token)
        return fresh

    late = acquire(face, lease="30s")
    face.clock.advance("31s")
    owner = acquire(face.another())
    assert write(owner.token)
    assert not write(late.token)


def test_the_error_of_a_block_goes_on_and_says_that_the_lock_was_lost_too(face: Face) -> None:
    with pytest.raises(ValueError, match="half written") as told, locked(face, lease="30s"):
        face.clock.advance("31s")
        acquire(face.another())
        raise ValueError("half written")
    assert any("another owner" in note for note in told.value.__notes__)


def test_a_client_that_parks_after_crashes_still_takes_over_its_locks(face: Face) -> None:
    strict = face.another(after_crash="park", max_attempts=1)
    acquire(strict, lease="30s")
    face.clock.advance("31s")
    assert acquire(strict).taken_over


def test_a_free_lock_is_free_whatever_the_clock_says(face: Face) -> None:
    """The record's window was over at once. On a clock that was set back it seems to lie ahead."""
    with locked(face) as lock:
        before = lock.token
    face.clock.set_back("30m")
    with locked(face.another()) as lock:
        assert lock.token > before
    face.clock.set_back("10m")
    after = try_lock(face)
    assert after is not None
    assert after.token > before


def test_a_lock_given_back_after_a_takeover_is_free_whatever_the_clock_says(face: Face) -> None:
    acquire(face, lease="30s")
    face.clock.advance("31s")
    other = face.another()
    with pytest.raises(KeyboardInterrupt):
        interrupted(other)
    assert record_of(face).state is State.FAILED
    face.clock.set_back("30s")
    acquire(other).release()


def interrupted(face: Face) -> None:
    """A signal comes when the grant is there, but its holder does not know yet."""
    keeper = face.keeper
    take = keeper.take

    def struck(*args: Any) -> Any:
        raise KeyboardInterrupt

    keeper.take = struck
    try:
        acquire(face)
    finally:
        keeper.take = take


# ── trouble ──


@pytest.mark.fault("F53")
def test_a_claim_whose_reply_was_lost_is_recognised_as_ours(face: Face) -> None:
    with face.store_trouble("claim", times=1, applied=True):
        held = acquire(face)
    held.release()


@pytest.mark.fault("F53")
def test_a_release_whose_reply_was_lost_is_repeated(face: Face) -> None:
    held = acquire(face)
    with face.store_trouble("settle", times=2, applied=True) as failed:
        held.release()
    assert len(failed) == 2
    assert try_lock(face.another()) is not None


@pytest.mark.fault("F53")
def test_a_release_whose_reply_was_lost_is_no_loss_though_another_has_it_by_now(face: Face) -> None:
    """The repeated release meets the next owner. That one came after us, as the cycle shows, not over us."""
    held = acquire(face)
    other = face.another()
    taken: list[Owned] = []
    kind: Any = type(face.once.store)
    sound = kind.settle

    async def lost_and_overtaken(store: Any, *args: Any, **kwargs: Any) -> Any:
        kind.settle = sound
        await sound(store, *args, **kwargs)
        taken.append(face.start(acquire, other).result())
        raise StoreUnavailable("the reply was lost")

    kind.settle = lost_and_overtaken
    try:
        with nothing_at_once():
            held.release()
    finally:
        kind.settle = sound
    taken[0].check()
    taken[0].release()


@pytest.mark.fault("F43")
def test_an_unanswered_release_that_then_finds_another_owner_is_a_loss_if_that_one_came_over_us(face: Face) -> None:
    """By our own clock the lease is not over, by the store's it is: the same cycle tells that we were replaced."""
    held = acquire(face, lease="30s")
    face.clock._now += 31_000_000
    acquire(face.another())
    with face.store_trouble("settle", times=1), pytest.raises(LeaseLost):
        held.release()


def test_an_unanswered_release_after_the_lease_is_a_loss_though_the_lock_has_had_other_lives_since(face: Face) -> None:
    held = acquire(face, lease="30s")
    face.clock.advance("31s")
    for _ in range(2):
        acquire(face.another()).release()
    acquire(face.another())
    with face.store_trouble("settle", times=1), pytest.raises(LeaseLost):
        held.release()


def test_a_store_that_is_down_at_the_release_is_told_and_the_lock_frees_itself(face: Face) -> None:
    """Nobody is kept for longer than the lease: from then on the lock is free anyway."""
    patient = face.another(settle_timeout="1h")
    held = acquire(patient, lease="200ms")
    with face.store_trouble("settle"), pytest.raises(StoreUnavailable):
        held.release()
    assert patient.leases() == 0
    assert patient.told("unknown")
    face.clock.advance("1s")
    assert acquire(face.another()).taken_over


@pytest.mark.fault("F50")
def test_without_a_store_nobody_has_the_lock(face: Face) -> None:
    lenient = face.another(on_store_down="run")
    with face.store_trouble("claim"), pytest.raises(StoreUnavailable):
        acquire(lenient)


@pytest.mark.fault("F35")
def test_a_lock_taken_again_inside_its_own_block_is_an_error_and_no_deadlock(face: Face) -> None:
    with locked(face) as outer:
        with pytest.raises(Reentrant, match="already held by the call"), locked(face):
            pytest.fail("nobody gets here")
        with pytest.raises(Reentrant):
            try_lock(face)
        with locked(face, "another"):
            outer.check()
    with locked(face):
        pass


def test_locks_may_be_released_in_any_order(face: Face) -> None:
    first, second = acquire(face, "a"), acquire(face, "b")
    first.release()
    second.check()
    again = acquire(face, "a")
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
def test_a_key_is_a_lock_or_work_but_never_both(face: Face) -> None:
    with face.claim("sync", name=OPERATION, payload="work"), pytest.raises(PayloadMismatch, match="is no lock"):
        acquire(face.another(), wait=0)
    with locked(face, "other"), pytest.raises(PayloadMismatch), face.claim("other", name=OPERATION, payload="work"):
        pytest.fail("nobody gets here")


@pytest.mark.parametrize("fails", [0, 1], ids=["done", "failed"])
def test_a_lock_never_wipes_out_work_without_a_payload_that_has_its_name(face: Face, fails: int) -> None:
    """Nothing tells the two apart but the mark of a lock: here no clock was set back, the work is in its way."""
    with contextlib.suppress(ZeroDivisionError), face.claim("sync", name=OPERATION, final=(ZeroDivisionError,)):
        assert 1 // (1 - fails)
    before = face.read("sync", name=OPERATION).record
    with pytest.raises(PayloadMismatch, match="is no lock"), locked(face, "sync"):
        pytest.fail("it was locked")
    assert face.read("sync", name=OPERATION).record == before


@pytest.mark.fault("F46")
def test_a_lease_that_cannot_work_and_a_name_that_names_nothing_are_refused(face: Face) -> None:
    with pytest.raises(ConfigurationError, match="lease"):
        acquire(face, lease=0)
    for nothing in ("", None, ()):
        with pytest.raises(ConfigurationError):
            acquire(face, nothing)


def test_while_onceward_is_disabled_a_lock_locks_nothing(face: Face) -> None:
    with testing.disabled(), locked(face) as lock:
        lock.check()
        assert try_lock(face) is not None
        assert face.read("sync", name=OPERATION) is None


def test_events_tell_who_took_and_gave_up_a_lock(face: Face) -> None:
    with locked(face):
        try_lock(face.another())
    told = [(event.name, event.key, event.scope) for event in face.events]
    assert told == [("acquired", "sync", "default/lock"), ("released", "sync", "default/lock")]


# ── what only one colour or one store can show ──


async def test_a_task_that_holds_a_lost_lock_is_cancelled_if_asked_for(tmp_path: Path) -> None:
    once = AsyncOnce(f"sqlite:///{tmp_path}/a.db")
    entered = asyncio.Event()

    async def work() -> None:
        async with once.lock("sync", lease="200ms", on_lost="cancel"):
            entered.set()
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    await entered.wait()
    await once.forget("sync", name=OPERATION, force=True)
    async with once.lock("sync"):
        with pytest.raises(LeaseLost):
            await task
    assert not task.cancelled()
    await once.close()


async def test_a_cancelled_task_releases_its_lock_and_one_that_waits_takes_nothing(tmp_path: Path) -> None:
    async with AsyncOnce(f"sqlite:///{tmp_path}/a.db") as once:
        entered = asyncio.Event()

        async def work() -> None:
            async with once.lock("sync"):
                entered.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await entered.wait()
        waiting = asyncio.create_task(once.lock("sync").acquire())
        await asyncio.sleep(0.05)
        for one in (waiting, task):
            one.cancel()
            with pytest.raises(asyncio.CancelledError):
                await one
        lock = await once.try_lock("sync")
        assert lock is not None
        await lock.release()


async def test_a_task_started_inside_a_block_may_wait_for_the_lock_in_a_context_of_its_own(tmp_path: Path) -> None:
    async with AsyncOnce(f"sqlite:///{tmp_path}/a.db") as once:

        async def later() -> None:
            async with once.lock("sync"):
                pass

        async with once.lock("sync"):
            inside = asyncio.create_task(later())
            apart = asyncio.create_task(later(), context=contextvars.Context())
            with pytest.raises(Reentrant):
                await inside
        await apart


@pytest.mark.fault("F34")
def test_a_fork_does_not_inherit_a_lock(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/a.db")
    lock = once.lock("sync").acquire()
    child = os.fork()
    if child == 0:
        try:
            told = [_raises_lease_lost(lock.check), once.try_lock("sync") is None, _raises_lease_lost(lock.release)]
        except BaseException:
            told = [False]
        os._exit(0 if all(told) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock.check()
    lock.release()
    once.close()


def _raises_lease_lost(call: Any) -> bool:
    try:
        call()
    except LeaseLost:
        return True
    return False


def test_a_block_is_left_where_it_was_entered_or_by_its_only_holder() -> None:
    once = Once(MemoryStore())
    shared = once.lock("a")
    with pytest.raises(ConfigurationError, match="not entered here"):
        shared.__exit__(None, None, None)
    shared.__enter__()
    thread = threading.Thread(target=shared.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    lock = once.try_lock("a")
    assert lock is not None
    lock.release()
    once.close()


def test_a_close_neither_waits_for_a_lock_of_its_own_thread_nor_is_silent_about_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("onceward.worlds.keeper.time.sleep", lambda _: pytest.fail("it waits for itself"))
    once = Once(MemoryStore())
    lock = once.try_lock("sync", lease="5s")
    assert lock is not None
    once.close()
    [told] = [record for record in caplog.records if "still_held" in record.message]
    assert (told.levelname, "sync" in told.message) == ("WARNING", True)
    assert "free when its lease lapses" in told.message


def test_a_close_tells_what_it_waits_for_and_goes_on_when_that_is_released(caplog: pytest.LogCaptureFixture) -> None:
    once = Once(MemoryStore())
    lock = contextvars.Context().run(once.try_lock, "sync")
    assert lock is not None
    closing = threading.Thread(target=once.close, args=(TOO_LONG,))
    closing.start()
    until(lambda: "close waits for it" in caplog.text)
    lock.release()
    closing.join(TOO_LONG)
    assert not closing.is_alive()
    assert "closed all the same" not in caplog.text


def test_two_holders_of_one_lock_object_are_not_mistaken_for_each_other() -> None:
    """Whoever leaves a block that they did not enter cannot be told which of two is meant."""
    stores = [MemoryStore(), MemoryStore()]
    onces = [Once(store) for store in stores]
    shared = onces[0].lock("a")
    contextvars.Context().run(shared.__enter__)
    shared._engine = onces[1].engine  # two at once, as in two tenants of one program
    contextvars.Context().run(shared.__enter__)
    with pytest.raises(ConfigurationError, match="not entered here"):
        contextvars.Context().run(shared.__exit__, None, None, None)
    for once in onces:
        once.close(timeout=0)


def test_an_interrupt_while_the_store_is_down_keeps_nobody_for_the_rest_of_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    face = Face(Place("memory", tmp_path, clock))
    held = acquire(face, lease="1h")
    calls: list[int] = []

    async def down(*_: Any, **__: Any) -> Any:
        calls.append(len(calls))
        assert len(calls) < 20, "it goes on for the whole lease"
        if len(calls) == 1:
            raise KeyboardInterrupt
        clock.advance("4s")
        raise StoreUnavailable("down")

    with nothing_at_once(), monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(MemoryStore, "settle", down)
        held.release()
    assert face.leases() == 0
    face.close()


def test_what_is_unwise_for_the_work_of_a_client_says_nothing_about_its_locks() -> None:
    with pytest.warns(OncewardWarning, match="retry span"):
        once = Once(MemoryStore(), window="1h", retry_span="3d")
    with once.lock("sync"):
        pass
    once.close()


def test_time_spent_on_a_lock_that_a_clock_set_back_made_look_done_counts_as_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    face = Face(Place("memory", tmp_path, clock))
    waits: list[int] = []

    async def acquire_slowly(asked: Any) -> Any:
        waits.append(round(asked.job.policy.wait / 1_000_000))
        clock.advance("10s")
        return Replayed(key="sync") if len(waits) < 5 else Running(key="sync")

    monkeypatch.setattr("onceward.core.lock.acquire", acquire_slowly)
    with pytest.raises(AlreadyRunning):
        face.once.lock("sync", wait="30s").acquire()
    assert waits == [30, 20, 10, 0, 0]
    face.close()


def test_cycles_of_a_lock_do_not_grow_the_file(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/a.db?synchronous=NORMAL")
    sizes = []
    for _ in range(2):
        for _ in range(200):
            with once.lock("sync"):
                pass
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            rows = connection.execute("SELECT count(*) FROM onceward_records").fetchone()[0]
        assert rows == 1
        sizes.append((tmp_path / "a.db").stat().st_size)
    assert sizes[0] == sizes[1]
    once.close()
