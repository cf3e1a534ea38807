"""The thread of the heartbeat: when it exists, and that nothing ends it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from onceward import LeaseLost, Once
from onceward.errors import Stopping
from onceward.observe import Event
from onceward.protocol.requests import Answer, Renewal
from onceward.runtime.native_thread import Wakeup
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores import MemoryStore
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.clock import FakeClock
from tests.cli.calls import until
from tests.faulty import FaultyNetwork, FaultyStore
from tests.heartbeats import THREAD_NAME, heartbeat_threads
from tests.raw_sqlite import busy, connection_of
from tests.unit.heartbeat_harness import Harness, harness

__all__ = ["harness"]  # fixtures, imported here so that pytest finds them


# ── the thread ──


def test_there_is_no_thread_before_the_first_claim_and_one_for_all_of_them() -> None:
    before = len(heartbeat_threads())
    with Once("memory://") as once:
        assert once.read("work") is None
        assert len(heartbeat_threads()) == before
        for number in range(5):
            once.run(f"work {number}", int)
        with once.claim("a"), once.claim("b"), once.using(tenant="acme").claim("c"):
            assert len(heartbeat_threads()) == before + 1


def test_closing_joins_the_thread_and_a_second_close_is_fine() -> None:
    before = len(heartbeat_threads())
    once = Once("memory://")
    once.run("work", int)
    once.close()
    assert len(heartbeat_threads()) == before
    once.close()


def test_a_closed_heartbeat_takes_no_lease_and_the_key_is_released() -> None:
    store = MemoryStore()
    once = Once(store)
    once.heartbeat.close()
    with pytest.raises(Stopping, match="closed"):
        once.run("work", int)
    assert Once(store).outcome("work", int).executed


def test_a_short_lease_is_renewed_in_time_although_the_heartbeat_had_planned_a_long_sleep() -> None:
    network = FaultyNetwork()
    with Once(FaultyStore(MemoryStore(), network)) as once, once.claim("long", lease="10m"):
        time.sleep(0.05)  # asleep for two minutes by now
        with once.claim("short", lease="2s") as claim:
            until(lambda: network.calls["renew"] >= 4)
            claim.check()


def test_the_heartbeat_has_a_connection_of_its_own(tmp_path: Path) -> None:
    """A connection that the work keeps busy does not keep the renewals out."""
    clones: list[SQLiteStore] = []

    class Cloned(SQLiteStore):
        def clone(self) -> SQLiteStore:
            clones.append(super().clone())
            return clones[-1]

    store = Cloned(tmp_path / "once.db")
    reported: list[str] = []
    with Once(store, lease="2s") as once, once.claim("work") as claim:
        once.subscribe(lambda event: reported.append(event.name))
        with busy(store):
            until(lambda: reported.count("renewed") > 1)
        claim.check()
        [clone] = clones
        assert connection_of(clone).is_open
    assert not connection_of(clone).is_open, "the heartbeat closes what it has opened"


def test_an_unexpected_error_in_the_store_does_not_end_the_thread(harness: Harness) -> None:
    class Buggy(MemoryStore):
        broken = True

        async def renew(self, *args: object, **kwargs: object) -> list[Answer]:
            if self.broken:
                raise ZeroDivisionError
            return await super().renew(*args, **kwargs)  # type: ignore[arg-type]

    store = Buggy()
    reported: list[str] = []
    with Once(store, lease="2s") as once, once.claim("work") as claim:
        once.subscribe(lambda event: reported.append(event.name))
        until(lambda: "renewal_failed" in reported)
        store.broken = False
        until(lambda: "renewed" in reported)
        claim.check()


def test_a_canceller_that_fails_does_not_end_the_thread() -> None:
    """The loop of a lost task may be closed by the time the heartbeat cancels it."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    events: list[Event] = []
    with Once(store, lease="2s") as once, once.claim("kept") as kept:
        once.subscribe(events.append)
        with pytest.raises(LeaseLost), once.claim("lost"):
            hold = once.heartbeat.held()[-1]

            def closed() -> None:
                raise RuntimeError("Event loop is closed")

            hold.on_lost = closed
            run(store.forget([hold.record.id], force=True, timeout=1))
            until(lambda: hold.lost)
        events.clear()
        until(lambda: "renewed" in [event.name for event in events])
        kept.check()
        assert len(heartbeat_threads()) >= 1


def test_a_process_that_ends_without_closing_joins_the_heartbeat_and_exits_immediately() -> None:
    script = """
        import atexit, threading, time
        atexit.register(lambda: print("left:", [one.name for one in threading.enumerate() if "onceward" in one.name]))
        from onceward import Once
        once = Once("memory://", lease="10m")
        once.claim("held to the end").__enter__()
        print("during:", [one.name for one in threading.enumerate() if "onceward" in one.name])
    """
    done = subprocess.run(  # the heartbeat sleeps for two minutes: a process that waits for it is killed before
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"during: ['{THREAD_NAME}']", "left: []"]
    assert done.stderr == ""


@pytest.mark.fault("F35")
@pytest.mark.timeout(60)
def test_a_claim_made_by_a_signal_handler_while_its_thread_wakes_the_heartbeat_does_not_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Once("memory://", lease="10m") as once:
        once.run("first", int)
        wake = Wakeup.wake
        inner: list[int] = []

        def interrupted(wakeup: Wakeup) -> None:
            monkeypatch.setattr(Wakeup, "wake", wake)
            inner.append(once.run("from the handler", int))
            wake(wakeup)

        monkeypatch.setattr(Wakeup, "wake", interrupted)
        with once.claim("outer", lease="1m"):  # due before the next check that the thread has planned
            assert inner == [0]


def test_a_clone_of_the_store_is_opened_with_the_thread_runtime(harness: Harness) -> None:
    opened: list[object] = []

    async def remember(runtime: object) -> None:
        opened.append(runtime)

    harness.store.open = remember  # type: ignore[method-assign]
    harness.hold()
    harness.after(120)
    assert isinstance(opened[0], ThreadRuntime)


# ── nothing ends its thread ──


class Forgetful(MemoryStore):
    """Returns fewer answers than there are leases to renew."""

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return (await super().renew(renewals, timeout=timeout))[1:]


@pytest.mark.mission("B3")
def test_a_store_that_answers_too_little_does_not_end_the_thread() -> None:
    before = heartbeat_threads()
    once = Once(Forgetful(), lease="50ms")
    reported: list[str] = []
    once.subscribe(lambda event: reported.append(event.name))
    with once.claim("order 7"):
        until(lambda: reported.count("renewal_failed") > 2)
        assert len(heartbeat_threads() - before) == 1
    once.close()


@pytest.mark.mission("B3")
def test_a_listener_that_wants_to_exit_does_not_end_the_thread() -> None:
    once = Once(MemoryStore(), lease="1s")
    reported: list[str] = []

    def listen(event: Event) -> None:
        reported.append(event.name)
        if event.name.startswith("renew"):
            raise SystemExit

    once.subscribe(listen)
    with once.claim("order 7") as claim:
        until(lambda: reported.count("renewed") > 2)
        claim.check()
    once.close()


@pytest.mark.mission("B3")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_all_the_same_is_replaced_with_the_next_hold() -> None:
    once = Once(MemoryStore(), lease="50ms")
    before = heartbeat_threads()

    def dies() -> float:
        if threading.current_thread() in heartbeat_threads() - before:
            raise SystemExit
        return time.monotonic()

    once.heartbeat.monotonic = dies
    with once.claim("order 6"):
        until(lambda: heartbeat_threads() == before)
    once.heartbeat.monotonic = time.monotonic
    reported: list[str] = []
    once.subscribe(lambda event: reported.append(event.name))
    with once.claim("order 7"):
        until(lambda: "renewed" in reported)
    once.close()
