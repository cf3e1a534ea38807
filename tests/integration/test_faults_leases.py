"""Leases that lapse, are taken over, are late, or are counted by a clock that jumps."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from onceward import (
    AlreadyRunning,
    AsyncOnce,
    ConfigurationError,
    LeaseLost,
    LeaseOverdue,
    MemoryStore,
    Once,
    Running,
    State,
    Unknown,
    current_async_claim,
)
from onceward.ports import Store
from onceward.testing.clock import FakeClock
from tests.faces import Face, Place
from tests.faulty import FaultyPlace, FaultyStore, Wire


def work() -> str:
    return "theirs"


async def async_work() -> str:
    return "theirs"


def elsewhere(call: Callable[[], Any]) -> Any:
    """As another caller would: not inside the claim that is held here."""
    return contextvars.Context().run(call)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def store(place: Place, wire: Wire) -> Store:
    return FaultyPlace(place, wire).open()


# ── F40, F41: taking over ──


@pytest.mark.fault("F40")
def test_of_many_who_take_over_one_lapsed_lease_one_wins(face: Face) -> None:
    face.silent_owner("order 7")
    face.clock.advance("1h")
    workers = [face.another(on_running="raise") for _ in range(6)]
    line = threading.Barrier(len(workers))

    def take_over(worker: Face) -> int:
        line.wait(10)
        return int(worker.silent_owner("order 7").attempt)

    answers = [worker.start(take_over, worker) for worker in workers]
    errors = [answer.exception(20) for answer in answers]
    assert [type(error).__name__ for error in errors if error] == ["AlreadyRunning"] * 5
    assert [answer.result() for answer in answers if not answer.exception()] == [2]


@pytest.mark.fault("F41")
@pytest.mark.rival(1)
def test_a_replaced_owner_is_refused_with_whatever_it_tries_and_changes_nothing(face: Face) -> None:
    late = face.silent_owner("order 7", lease="10m")
    face.clock.advance("11m")
    other = face.another()
    with other.claim("order 7") as winner:
        assert winner.token > late.token
        before = face.read("order 7").record
        with pytest.raises(LeaseLost):
            late.complete("late")
        with pytest.raises(LeaseLost):
            late.annotate(step="late")
        assert face.read("order 7").record == before
        winner.complete("theirs")
    assert face.read("order 7").value == "theirs"


@pytest.mark.fault("F41")
def test_a_handler_that_was_replaced_is_told_that_its_result_does_not_count(face: Face) -> None:
    other = face.another()

    def slow() -> str:
        face.clock.advance("11m")
        assert other.start(elsewhere, lambda: other.run("order 7", fresh)).result(10) == "theirs"
        return "late"

    def fresh() -> str:
        return "theirs"

    fresh.__qualname__ = slow.__qualname__
    outcome = face.outcome("order 7", slow)
    assert isinstance(outcome, Unknown)
    assert (outcome.lost, outcome.value) == (True, "late")
    with pytest.raises(LeaseLost):
        outcome.unwrap()
    entry = face.read("order 7")
    assert (entry.value, entry.attempt) == ("theirs", 2)
    assert [event.reason for event in face.told("lost")] == ["result refused"]


@pytest.mark.fault("F41")
def test_a_handler_that_was_replaced_cannot_fail_the_winners_work(face: Face) -> None:
    other = face.another()

    def slow() -> str:
        face.clock.advance("11m")
        other.start(elsewhere, lambda: other.run("order 7", fresh)).result(10)
        raise ConnectionError

    def fresh() -> str:
        return "theirs"

    fresh.__qualname__ = slow.__qualname__
    with pytest.raises(ConnectionError):
        face.run("order 7", slow)
    assert face.read("order 7").value == "theirs"
    assert [event.reason for event in face.told("lost")] == ["failure refused"]


@pytest.mark.fault("F32", "F41")
def test_a_late_owner_whom_nobody_replaced_still_counts(face: Face) -> None:
    """Refusing it would only cause a second effect."""
    late = face.silent_owner("order 7", lease="10m")
    face.clock.advance("5h")
    late.complete("late")
    assert face.read("order 7").value == "late"


# ── F42: a missing lease ──


@pytest.mark.fault("F42")
@pytest.mark.rival(11)
def test_a_record_without_a_lease_is_held_for_ever(face: Face) -> None:
    face.silent_owner("order 7")
    id = face.read("order 7").record.id
    if face.place.kind == "memory":
        records = face.place._memory._records
        records[id] = replace(records[id], lease_until=None)
    elif face.place.kind != "sqlite":
        pytest.skip("the conformance kit asks for a claim without a lease instead")
    else:
        with closing(sqlite3.connect(face.place.path)) as connection, connection:
            connection.execute("UPDATE onceward_records SET lease_until = NULL WHERE id = ?", (id,))
    face.clock.advance("365d")
    impatient = face.another(on_running="raise", app="default")
    with pytest.raises(AlreadyRunning), impatient.claim("order 7"):
        pass


# ── F43, F44: clocks ──


@pytest.mark.fault("F43")
@pytest.mark.parametrize("hours", [-12, 12])
def test_a_caller_whose_own_clock_is_hours_off_neither_steals_nor_loses_anything(
    place: Place, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the store's clock decides; the caller counts durations."""
    right = Once(place.open(), lease="10m")
    held = elsewhere(right.claim("order 7").__enter__)
    wrong = Once(place.open(), on_running="raise", lease="10m")
    monkeypatch.setattr(wrong.engine.world, "monotonic", lambda: time.monotonic() + hours * 3600)
    wrong.keeper._monotonic = wrong.engine.world.monotonic
    with pytest.raises(AlreadyRunning) as refused:
        wrong.claim("order 7").__enter__()
    assert refused.value.retry_after == pytest.approx(600, abs=1)
    with wrong.claim("order 8") as claim:
        wrong.keeper.tick()
        claim.check()
    assert wrong.outcome("order 9", work).executed
    held.complete("done")
    right.close(timeout=0)
    wrong.close()


@pytest.mark.fault("F44")
def test_a_wall_clock_that_jumps_back_frees_nobody_and_tokens_still_grow(face: Face) -> None:
    with face.claim("order 7", lease="10m") as claim:
        first = claim.token
        face.clock.set_back("30m")
        claim.check()
        with pytest.raises(AlreadyRunning):
            elsewhere(lambda: face.another(on_running="raise").silent_owner("order 7"))
        claim.complete("done")
    assert face.read("order 7").value == "done"
    face.forget("order 7")
    with face.claim("order 7") as again:
        assert again.token > first


@pytest.mark.fault("F44")
def test_a_machine_whose_wall_clock_jumps_back_still_renews_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    store = MemoryStore()
    with Once(store, lease="200ms") as once, once.claim("order 7") as claim:
        monkeypatch.setattr(time, "time_ns", lambda: real() - 3_600_000_000_000)
        monkeypatch.setattr(time, "time", lambda: real() / 1e9 - 3600)
        time.sleep(0.5)
        claim.check()
        with Once(store, on_running="raise") as other:
            assert isinstance(elsewhere(lambda: other.outcome(once.key("order 7"), work)), Running)


# ── F45: renewals ──


@pytest.mark.fault("F45")
@pytest.mark.mission("B3")
def test_work_survives_renewals_that_fail_for_most_of_its_lease(
    store: Store, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    """Real time: a lease of half a second, and a store that misses the first renewals."""
    with Once(store, lease="500ms") as once:
        wire.lose_requests("renew", 3)

        def slow() -> str:
            time.sleep(0.8)
            return "done"

        outcome = once.outcome("order 7", slow)
    assert (outcome.kind, outcome.attempt) == ("executed", 1)
    failures = [record for record in caplog.records if "renewal_failed" in record.getMessage()]
    assert len(failures) == 3
    assert {record.levelname for record in failures} == {"WARNING"}


# ── F46 ──


@pytest.mark.fault("F46")
@pytest.mark.parametrize("face_type", [Once, AsyncOnce])
@pytest.mark.parametrize("lease", [0, -1, "0s", "1ms", "49ms", "8d", 10**9, float("inf")])
def test_a_lease_that_cannot_work_is_refused_before_anything_runs(face_type: Any, lease: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"[Ll]ease"):
        face_type("memory://", lease=lease)
    once = face_type("memory://")
    with pytest.raises(ConfigurationError, match=r"[Ll]ease"):
        once(lease=lease)(async_work if face_type is AsyncOnce else work)
    with pytest.raises(ConfigurationError, match=r"[Ll]ease"):
        once.claim("order 7", lease=lease)
    with pytest.raises(ConfigurationError, match=r"[Ll]ease"):
        once.using(lease=lease)


# ── overdue and lost ──


@pytest.mark.fault("F45", "F32")
def test_a_store_that_is_silent_beyond_the_lease_makes_the_claim_overdue_and_it_recovers(
    store: Store, wire: Wire
) -> None:
    with Once(store, lease="300ms") as once:
        told: list[str] = []
        once.subscribe(lambda event: told.append(event.name))
        wire.lose_requests("renew")
        with once.claim("order 7") as claim:
            claim.check()
            time.sleep(0.35)
            with pytest.raises(LeaseOverdue):
                claim.check()
            wire.heal()
            until = time.monotonic() + 2
            while time.monotonic() < until and "renewed" not in told:
                time.sleep(0.01)
            claim.check()
            claim.complete("done")
        assert "overdue" in told
        assert "lost" not in told


@pytest.mark.fault("F41")
def test_work_that_was_taken_over_is_told_at_once_by_the_next_heartbeat(face: Face) -> None:
    claim = face.silent_owner("order 7", lease="10m")
    face.clock.advance("11m")
    with pytest.raises(LeaseOverdue):
        claim.check()
    with face.another().claim("order 7"):
        face.heartbeat()
        with pytest.raises(LeaseLost) as lost:
            claim.check()
        assert type(lost.value) is LeaseLost
    assert len(face.told("lost")) == 1


async def lose(once: AsyncOnce, clock: FakeClock, store: Store, key: Any) -> None:
    """Somebody else takes the key over, and the keeper hears of it."""
    clock.advance("11m")
    other = AsyncOnce(store)
    await asyncio.create_task(other.claim(key).__aenter__(), context=contextvars.Context())
    await asyncio.to_thread(tick_late, once)
    await asyncio.to_thread(other.keeper.close)


def tick_late(once: AsyncOnce) -> None:
    once.keeper._monotonic = lambda: time.monotonic() + 660
    once.keeper.tick()


@pytest.mark.fault("F41")
@pytest.mark.rival(8)
async def test_with_on_lost_cancel_the_task_is_cancelled_and_told_that_it_lost(store: Store, clock: FakeClock) -> None:
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
            await asyncio.sleep(0)  # a cancellation that was left over would strike here
            return outcome

        task = asyncio.create_task(call())
        await begun.wait()
        await lose(once, clock, store, once.key("order 7"))
        outcome = await asyncio.wait_for(task, 10)
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
            await asyncio.wait_for(task, 10)
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
        keeper = asyncio.get_running_loop().run_in_executor(None, tick_late, once)
        while once.keeper._holds:
            time.sleep(0.001)  # noqa: ASYNC251 (the loop must not run yet: both cancellations arrive together)
        task.cancel()
        await keeper
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        await asyncio.to_thread(other.keeper.close)


@pytest.mark.fault("F41")
async def test_a_task_that_lost_its_lease_after_its_work_was_done_is_not_cancelled(
    store: Store, clock: FakeClock
) -> None:
    """The keeper's word may come a moment too late; it must not strike whatever the task does next."""
    async with AsyncOnce(store, on_lost="cancel") as once:

        async def blocking() -> str:
            key = once.key("order 7")
            clock.advance("11m")
            worker = threading.Thread(target=elsewhere, args=(lambda: takes_over(key),))
            worker.start()
            worker.join(10)  # the loop is blocked: the cancellation is on its way, but cannot arrive yet
            assert not once.keeper._holds
            return "late"

        def takes_over(key: Any) -> None:
            with Once(store.twin()) as other:
                other.claim(key).__enter__()
                tick_late(once)
                other.keeper._holds.clear()

        outcome = await once.outcome("order 7", blocking)
        assert isinstance(outcome, Unknown)
        assert outcome.lost
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.fault("F41")
async def test_without_on_lost_cancel_the_work_goes_on_and_asks_for_itself(store: Store, clock: FakeClock) -> None:
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


@pytest.mark.fault("F33")
def test_a_key_that_its_owner_holds_for_ten_leases_is_never_free(place: Place) -> None:
    """Real time, a lease of 100 ms: one that looks all the time never finds a gap."""
    with Once(place.open(), lease="100ms") as once, Once(place.open(), on_running="raise") as other:
        kinds: set[str] = set()
        with once.claim("order 7"):
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                kinds.add(elsewhere(lambda: other.outcome(once.key("order 7"), work)).kind)
                time.sleep(0.002)
        assert kinds == {"running"}
        entry = once.read("order 7")
        assert entry is not None
        assert (entry.state, entry.attempt) == (State.COMPLETED, 1)


def test_the_wire_of_these_tests_is_in_use(store: Store) -> None:
    assert isinstance(store, FaultyStore)
