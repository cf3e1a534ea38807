"""The keeper of leases, mostly pass by pass on a fake clock."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from onceward import Event, LeaseLost, LeaseOverdue, MemoryStore, Once
from onceward.bridge import run
from onceward.core.lease import Lease
from onceward.errors import ConfigurationError
from onceward.model.policy import SECOND
from onceward.model.record import Answer, ClaimRequest, Fail, Record, Renewal, State, Verdict
from onceward.observe.log import logging_bus
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.clock import FakeClock
from onceward.worlds.keeper import Keeper
from onceward.worlds.threads import Threads
from tests.faulty import FaultyStore, Wire

LEASE = 600
NAME = "onceward-keeper"


def lease_of(record: Record, seconds: float) -> Lease:
    lease = Lease()
    lease.record, lease.nonce, lease.lease = record, record.nonce, round(seconds * SECOND)
    return lease


class HandDriven(Keeper):
    """Without a thread: only `tick` renews."""

    def _start(self) -> None:
        self._thread = threading.current_thread()

    def close(self) -> None:
        self._thread = None
        super().close()


class Bench:
    """A keeper on a memory store behind a wire, all on one clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(clock=self.clock)
        self.wire = Wire()
        self.store = FaultyStore(self.memory, self.wire)
        self.bus = logging_bus()
        self.events: list[Event] = []
        self.bus.subscribe(self.events.append)
        self.keeper = HandDriven(self.store, self.bus, monotonic=self.now)

    def now(self) -> float:
        return self.clock.elapsed / SECOND

    def record(self, name: str, lease: float = LEASE) -> Record:
        id = name.encode().rjust(32, b".")
        request = ClaimRequest(id, "app/op", name, f"nonce of {name}".encode(), round(lease * SECOND))
        answer = run(self.memory.claim([request], timeout=1))[0]
        assert answer.verdict is Verdict.ACQUIRED
        assert answer.record is not None
        return answer.record

    def hold(self, name: str = "work", lease: float = LEASE) -> Lease:
        held = lease_of(self.record(name, lease), lease)
        self.keeper.take(held, self.now())
        return held

    def stored(self, hold: Lease) -> Record:
        record = run(self.memory.read([hold.record.id], timeout=1))[0].record
        assert record is not None
        return record

    def taken_over(self, hold: Lease) -> None:
        """Somebody else claims the key, whose lease has lapsed."""
        request = ClaimRequest(hold.record.id, "app/op", hold.record.key, b"another", hold.lease)
        assert run(self.memory.claim([request], timeout=1))[0].verdict is Verdict.ACQUIRED

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.keeper.tick()

    def told(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.keeper.close()


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


# ── what could not be settled at once ──


def failure(hold: Lease) -> Fail:
    record = hold.record
    return Fail(record.id, record.token, record.nonce, "ValueError", "no", final=False, known=False)


def test_what_its_owner_could_not_settle_is_tried_again_and_told_once(bench: Bench) -> None:
    hold = bench.hold()
    bench.keeper.drop(hold)
    bench.keeper.end(hold, failure(hold))
    bench.wire.lose_requests("settle")
    for _ in range(3):
        bench.after(10)
    assert bench.stored(hold).state is State.PENDING
    bench.wire.heal()
    bench.after(10)
    bench.after(10)
    assert bench.stored(hold).state is State.FAILED
    assert [event.name for event in bench.events] == ["failed"]


def test_what_could_never_be_settled_lapses_and_is_forgotten(bench: Bench) -> None:
    hold = bench.hold()
    bench.keeper.drop(hold)
    bench.keeper.end(hold, failure(hold))
    bench.wire.lose_requests("settle")
    bench.after(LEASE + 1)
    bench.wire.heal()
    bench.after(1)
    assert bench.stored(hold).state is State.PENDING
    assert not bench.keeper._endings


# ── when ──


@pytest.mark.mission("B3")
def test_a_lease_is_renewed_every_fifth_of_it_and_not_before(bench: Bench) -> None:
    bench.hold()
    bench.after(119.9)
    assert bench.wire.calls["renew"] == 0
    bench.after(0.1)
    assert bench.wire.calls["renew"] == 1
    bench.after(119.9)
    assert bench.wire.calls["renew"] == 1
    bench.after(0.1)
    assert bench.wire.calls["renew"] == 2


def test_a_renewed_lease_ends_a_whole_lease_after_it_was_asked_for(bench: Bench) -> None:
    hold = bench.hold()
    bench.after(150)
    assert hold.ends == 150 + LEASE
    assert bench.stored(hold).lease_until == bench.clock.now() + LEASE * SECOND


def test_the_lease_is_counted_from_before_the_question_not_from_the_answer(bench: Bench) -> None:
    """The store may have granted it at any time in between; only the earlier end is safe."""
    hold = lease_of(bench.record("work"), LEASE)
    asked_at = bench.now()
    bench.clock.advance(30)  # the answer took its time
    bench.keeper.take(hold, asked_at)
    assert hold.ends == asked_at + LEASE


@pytest.mark.fault("F52")
def test_a_renewal_may_take_a_sixth_of_the_shortest_lease_at_most(bench: Bench) -> None:
    bench.hold("long", 600)
    bench.hold("short", 60)
    bench.after(120)
    assert bench.wire.timeouts["renew"] == [10.0]


@pytest.mark.parametrize(("leases", "calls"), [(1, [1]), (256, [256]), (257, [256, 1]), (600, [256, 256, 88])])
def test_renewals_travel_in_batches_of_256(bench: Bench, leases: int, calls: list[int]) -> None:
    for number in range(leases):
        bench.hold(f"work {number}")
    bench.after(120)
    assert bench.wire.sizes == calls
    assert len(bench.told("renewed")) == leases


def test_what_is_being_settled_is_kept_alive_until_the_store_has_answered(bench: Bench) -> None:
    """A settlement may be repeated for a whole lease; meanwhile nobody must take over."""
    hold = bench.hold()
    hold.settling = True
    bench.after(120)
    assert bench.wire.calls["renew"] == 1
    assert hold.ends == 120 + LEASE


def test_the_keeper_does_not_spin_on_a_lease_that_was_lost_while_it_is_being_settled(bench: Bench) -> None:
    hold = bench.hold()
    bench.clock.advance(LEASE)
    bench.taken_over(hold)
    hold.settling = True
    bench.keeper.tick()
    bench.keeper.tick()
    assert bench.wire.calls["renew"] == 1


def test_what_was_dropped_is_not_renewed_any_more(bench: Bench) -> None:
    bench.keeper.drop(bench.hold())
    bench.after(120)
    assert bench.wire.calls["renew"] == 0
    assert not bench.keeper._holds


# ── failures, overdue, lost ──


@pytest.mark.fault("F45")
@pytest.mark.mission("B3")
def test_a_failed_renewal_is_logged_and_tried_again_long_before_the_lease_ends(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    hold = bench.hold()
    bench.wire.lose_requests("renew", 1)
    bench.after(120)
    assert [event.key for event in bench.told("renewal_failed")] == ["work"]
    assert [one.levelno for one in caplog.records if "renewal_failed" in one.message] == [logging.WARNING]
    assert 120 + 12 <= hold.renew_at <= 120 + 36  # a tenth to three tenths of an interval
    bench.after(36)
    assert bench.wire.calls["renew"] == 2
    assert not hold.overdue
    assert hold.ends == 156 + LEASE


@pytest.mark.fault("F45")
def test_retries_are_spread_so_that_a_store_that_comes_back_is_not_stampeded(bench: Bench) -> None:
    holds = [bench.hold(f"work {number}") for number in range(50)]
    bench.wire.lose_requests("renew")
    bench.after(120)
    assert len({round(hold.renew_at, 3) for hold in holds}) > 25


@pytest.mark.fault("F45")
def test_renewing_goes_on_until_the_lease_lapses_and_beyond(bench: Bench) -> None:
    hold = bench.hold()
    bench.wire.lose_requests("renew")
    while bench.now() < LEASE - 4:
        bench.after(4)
    assert (hold.overdue, bench.told("overdue")) == (False, [])
    assert bench.wire.calls["renew"] >= 480 / 36
    for _ in range(30):
        bench.after(4)
    assert (hold.overdue, hold.lost) == (True, False)
    assert len(bench.told("overdue")) == 1, "told once, not at every retry"
    bench.wire.heal()
    bench.after(36)
    assert not hold.overdue
    assert bench.stored(hold).lease_until == bench.clock.now() + LEASE * SECOND


@pytest.mark.fault("F53")
def test_a_renewal_whose_reply_was_lost_is_repeated_and_does_no_harm(bench: Bench) -> None:
    hold = bench.hold()
    bench.wire.lose_replies("renew", 1)
    bench.after(120)
    bench.after(36)
    assert not hold.lost
    assert hold.ends == 156 + LEASE


@pytest.mark.fault("F41")
def test_another_owner_means_lost_is_told_once_and_ends_the_care(bench: Bench) -> None:
    hold = bench.hold()
    rung: list[str] = []
    hold.on_lost = lambda: rung.append("lost")
    bench.clock.advance(LEASE)
    bench.taken_over(hold)
    before = bench.stored(hold)
    bench.keeper.tick()
    assert hold.lost
    assert rung == ["lost"]
    assert not bench.keeper._holds
    bench.after(LEASE)
    assert len(bench.told("lost")) == 1
    assert bench.wire.calls["renew"] == 1
    assert bench.stored(hold) == before


def test_a_lease_that_its_owner_settled_meanwhile_is_not_lost(bench: Bench) -> None:
    """The answer LOST also comes when the owner itself has just completed."""
    hold = bench.hold()
    rung: list[str] = []
    hold.on_lost = lambda: rung.append("lost")
    bench.clock.advance(LEASE)
    bench.taken_over(hold)
    due = bench.keeper.due()
    hold.settling = True  # begun after the keeper had looked
    bench.keeper._renew(due)
    assert not hold.lost
    assert rung == []


def test_a_lease_that_its_owner_claimed_anew_meanwhile_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saga does so after a line without an answer. The keeper's question about the old one is still under way."""
    hold = bench.hold()
    sound = bench.store.renew

    async def renew(renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        bench.keeper.drop(hold)
        bench.taken_over(hold)
        hold.record, hold.nonce = bench.stored(hold), b"another"
        bench.keeper.take(hold, bench.now())
        return await sound(renewals, timeout=timeout)

    bench.clock.advance(LEASE)
    monkeypatch.setattr(bench.store, "renew", renew)
    bench.keeper.tick()
    assert not hold.lost
    assert bench.keeper._holds == {b"another": hold}


def test_one_lost_lease_does_not_stop_the_renewal_of_the_others(bench: Bench) -> None:
    lost, kept = bench.hold("lost"), bench.hold("kept")
    bench.clock.advance(LEASE)
    bench.taken_over(lost)
    bench.keeper.tick()
    assert lost.lost
    assert not kept.lost
    assert kept.ends == 2 * LEASE


def test_a_record_that_a_newer_version_rewrote_is_not_taken_for_lost(bench: Bench) -> None:
    hold = bench.hold()

    async def newer(*_: object, **__: object) -> list[Answer]:
        return [Answer(Verdict.SKEW, bench.stored(hold), bench.clock.now())]

    bench.store.inner = type("Newer", (), {"renew": staticmethod(newer), "twin": lambda self: self, "open": newer})()
    bench.after(120)
    assert not hold.lost
    assert len(bench.told("renewal_failed")) == 1


def test_check_tells_overdue_from_lost(bench: Bench) -> None:
    once = Once(bench.store, lease=LEASE)
    once.keeper.close()
    once.keeper = once.engine.keeper = bench.keeper
    once.engine.world.monotonic = bench.now  # type: ignore[method-assign]
    with pytest.raises(LeaseLost) as lost, once.claim("work") as claim:
        claim.check()
        bench.wire.lose_requests("renew")
        bench.after(LEASE)
        with pytest.raises(LeaseOverdue):
            claim.check()
        bench.wire.heal()
        bench.after(36)
        claim.check()  # recovered
        bench.clock.advance(LEASE)
        bench.taken_over(next(iter(bench.keeper._holds.values())))
        with pytest.raises(LeaseOverdue):
            claim.check()  # nobody has told us yet, but our own clock says so
        bench.keeper.tick()
        claim.check()
    assert type(lost.value) is LeaseLost


# ── the thread ──


def test_there_is_no_thread_before_the_first_claim_and_one_for_all_of_them() -> None:
    before = len(keepers())
    with Once("memory://") as once:
        assert once.read("work") is None
        assert len(keepers()) == before
        for number in range(5):
            once.run(f"work {number}", int)
        with once.claim("a"), once.claim("b"), once.using(tenant="acme").claim("c"):
            assert len(keepers()) == before + 1


def test_closing_joins_the_thread_and_a_second_close_is_fine() -> None:
    before = len(keepers())
    once = Once("memory://")
    once.run("work", int)
    once.close()
    assert len(keepers()) == before
    once.close()


def test_a_closed_keeper_takes_no_lease_and_the_key_is_given_back() -> None:
    store = MemoryStore()
    once = Once(store)
    once.keeper.close()
    with pytest.raises(ConfigurationError, match="closed"):
        once.run("work", int)
    assert Once(store).outcome("work", int).executed


def test_a_short_lease_is_renewed_in_time_although_the_keeper_had_planned_a_long_sleep() -> None:
    wire = Wire()
    with Once(FaultyStore(MemoryStore(), wire)) as once, once.claim("long", lease="10m"):
        time.sleep(0.05)  # asleep for two minutes by now
        with once.claim("short", lease="200ms") as claim:
            time.sleep(0.4)
            claim.check()
    assert wire.calls["renew"] >= 4


def test_the_keeper_has_a_connection_of_its_own(tmp_path: Path) -> None:
    """A connection that the work keeps busy does not keep the renewals out."""
    store = SQLiteStore(tmp_path / "once.db")
    with Once(store, lease="300ms") as once, once.claim("work") as claim:
        with store._link._lock:
            time.sleep(0.5)
        claim.check()
        twin = once.keeper._twin
        assert isinstance(twin, SQLiteStore)
        assert twin is not store
    assert not twin._link.is_open, "the keeper closes what it has opened"


def test_an_error_in_the_store_that_nobody_foresaw_does_not_end_the_thread(bench: Bench) -> None:
    class Buggy(MemoryStore):
        broken = True

        async def renew(self, *args: object, **kwargs: object) -> list[Answer]:
            if self.broken:
                raise ZeroDivisionError
            return await super().renew(*args, **kwargs)  # type: ignore[arg-type]

    store = Buggy()
    with Once(store, lease="200ms") as once, once.claim("work") as claim:
        time.sleep(0.15)
        store.broken = False
        time.sleep(0.15)
        claim.check()


def test_a_canceller_that_fails_does_not_end_the_thread() -> None:
    """The loop of a lost task may be closed by the time it is told."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    events: list[Event] = []
    with Once(store, lease="100ms") as once, once.claim("kept") as kept:
        once.subscribe(events.append)
        with pytest.raises(LeaseLost), once.claim("lost"):
            hold = list(once.keeper._holds.values())[-1]

            def closed() -> None:
                raise RuntimeError("Event loop is closed")

            hold.on_lost = closed
            run(store.forget([hold.record.id], force=True, timeout=1))
            wait_until(lambda: hold.lost)
        time.sleep(0.2)
        kept.check()
        assert len(keepers()) >= 1


def wait_until(happened: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def test_a_process_that_ends_without_closing_joins_the_keeper_and_ends_at_once() -> None:
    script = """
        import atexit, threading, time
        atexit.register(lambda: print("left:", [one.name for one in threading.enumerate() if "onceward" in one.name]))
        from onceward import Once
        once = Once("memory://")
        once.claim("held to the end").__enter__()
        print("during:", [one.name for one in threading.enumerate() if "onceward" in one.name])
    """
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"during: ['{NAME}']", "left: []"]
    assert done.stderr == ""
    assert time.monotonic() - began < 8, "the keeper was not woken, but waited for"


@pytest.mark.fault("F35")
@pytest.mark.timeout(20)
def test_a_claim_made_by_a_signal_handler_while_its_thread_rings_the_keeper_does_not_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Once("memory://") as once:
        once.run("first", int)
        ring = once.keeper._bell.notify
        inner: list[int] = []

        def interrupted() -> None:
            monkeypatch.setattr(once.keeper._bell, "notify", ring)
            inner.append(once.run("from the handler", int))
            ring()

        monkeypatch.setattr(once.keeper._bell, "notify", interrupted)
        for turn in itertools.count():
            once.keeper._next_look = float("inf")  # its own thread may set it, too, and then nobody rings
            once.run(("outer", turn), int)
            if inner:
                break
        assert inner == [0]


def test_a_twin_of_the_store_is_opened_in_the_blocking_world(bench: Bench) -> None:
    opened: list[object] = []

    async def remember(world: object) -> None:
        opened.append(world)

    bench.store.open = remember  # type: ignore[method-assign]
    bench.hold()
    bench.after(120)
    assert isinstance(opened[0], Threads)


# ── nothing ends its thread ──


class Forgetful(MemoryStore):
    """Answers for fewer leases than it was asked to renew."""

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return (await super().renew(renewals, timeout=timeout))[1:]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


@pytest.mark.mission("B3")
def test_a_store_that_answers_too_little_does_not_end_the_thread() -> None:
    once = Once(Forgetful(), lease="50ms")
    told: list[str] = []
    once.subscribe(lambda event: told.append(event.name))
    with once.claim("order 7"):
        until(lambda: told.count("renewal_failed") > 2)
        assert once.keeper._thread is not None
        assert once.keeper._thread.is_alive()
    once.close()


@pytest.mark.mission("B3")
def test_a_listener_that_wants_to_exit_does_not_end_the_thread() -> None:
    once = Once(MemoryStore(), lease="50ms")
    told: list[str] = []

    def listen(event: Event) -> None:
        told.append(event.name)
        if event.name.startswith("renew"):
            raise SystemExit

    once.subscribe(listen)
    with once.claim("order 7") as claim:
        until(lambda: told.count("renewed") > 5)
        claim.check()
    once.close()


@pytest.mark.mission("B3")
def test_a_thread_that_died_all_the_same_is_replaced_with_the_next_hold() -> None:
    once = Once(MemoryStore(), lease="50ms")
    dead = threading.Thread(target=int)
    dead.start()
    dead.join()
    once.keeper._thread = dead
    told: list[str] = []
    once.subscribe(lambda event: told.append(event.name))
    with once.claim("order 7"):
        until(lambda: "renewed" in told)
    once.close()
