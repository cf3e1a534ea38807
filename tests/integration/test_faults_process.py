"""Processes that fork, stop, are interrupted inside of a store call, or cannot start a thread."""

from __future__ import annotations

import asyncio
import contextvars
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AlreadyCompleted,
    AlreadyDone,
    AlreadyRunning,
    AsyncOnce,
    ClaimError,
    LeaseLost,
    MemoryStore,
    Once,
    Outcome,
    Reentrant,
    State,
    StillRunning,
    Stopping,
    StoreBroken,
)
from onceward.bridge import run
from onceward.errors import ConfigurationError
from onceward.ports import Store
from onceward.stores.sqlite import SQLiteStore
from tests.faces import Face, Place

INTERRUPTS = [KeyboardInterrupt, SystemExit, GeneratorExit]


def work() -> str:
    return "done"


def elsewhere(call: Callable[[], Any]) -> Any:
    """As another caller would: not inside the claim that is held here."""
    return contextvars.Context().run(call)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


# ── F33: a blocked event loop ──


@pytest.mark.fault("F33")
@pytest.mark.rival(8)
async def test_an_event_loop_that_is_blocked_for_longer_than_the_lease_keeps_its_claim(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    async with AsyncOnce(SQLiteStore(path), lease="250ms") as once:
        seen: list[str] = []

        def intruder() -> None:
            with Once(SQLiteStore(path), on_running="raise", lease="250ms") as other:
                for _ in range(8):
                    time.sleep(0.08)
                    seen.append(other.outcome("order 7", work).kind)

        async def blocking() -> str:
            thread = threading.Thread(target=intruder)
            thread.start()
            time.sleep(0.7)  # noqa: ASYNC251 (blocks the loop: that is the point)
            thread.join()
            return "done"

        blocking.__qualname__ = work.__qualname__
        outcome = await once.outcome("order 7", blocking)
        assert set(seen) == {"running"}
        assert (outcome.kind, outcome.attempt) == ("executed", 1)


# ── F34: fork, spawn, pickle ──


def in_a_forked_child(check: Callable[[], None]) -> None:
    """Run the check in a fork of this very process; whatever it raises there fails the test here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns that forking beside threads is brave
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, "what the child found is above"
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the child hangs")


@pytest.mark.fault("F34")
def test_a_forked_child_owns_nothing_of_its_parent(place: Place) -> None:
    once = Once(place.open(), lease="500ms")
    with once.claim("order 7") as claim:

        def child() -> None:
            assert not once.keeper._holds
            assert once.keeper._thread is None
            with pytest.raises(LeaseLost, match="parent"):
                claim.check()
            with pytest.raises(LeaseLost, match="parent"):
                claim.complete("stolen")

        in_a_forked_child(child)
        time.sleep(0.7)
        claim.check()
        claim.complete("mine")
    entry = once.read("order 7")
    assert entry is not None
    assert entry.value == "mine"
    once.close()


@pytest.mark.fault("F34")
def test_leaving_the_block_in_a_forked_child_does_not_settle_the_parents_claim(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    once = Once(SQLiteStore(path))
    block = once.claim("order 7")
    block.__enter__()

    def child() -> None:
        with pytest.raises(LeaseLost, match="parent"):
            block.__exit__(None, None, None)

    in_a_forked_child(child)
    entry = once.read("order 7")
    assert entry is not None
    assert entry.state is State.PENDING
    block.__exit__(None, None, None)
    once.close()


@pytest.mark.fault("F34")
def test_a_forked_child_works_with_the_client_it_inherited_and_has_a_keeper_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    once = Once(SQLiteStore(path), lease="300ms")
    once.run("before the fork", work)
    held = elsewhere(once.claim("held by the parent").__enter__)

    def child() -> None:
        assert once.outcome("before the fork", work).replayed
        with once.using(on_running="raise").claim("of the child") as claim:
            time.sleep(0.5)  # longer than the lease: somebody must renew it
            claim.check()
        with pytest.raises(AlreadyRunning), once.claim("held by the parent", on_running="raise"):
            pass

    in_a_forked_child(child)
    held.complete("still mine")
    owner = [once.read(key) for key in ("of the child", "held by the parent")]
    assert [entry.state for entry in owner if entry] == [State.COMPLETED] * 2
    assert {entry.owner for entry in owner if entry} != {owner[1].owner if owner[1] else ""}
    once.close(timeout=0)


@pytest.mark.fault("F34")
def test_the_nonces_of_parent_and_child_never_meet(tmp_path: Path) -> None:
    seen = tmp_path / "nonces"
    once = Once("memory://")
    once.engine.world.nonce()

    def child() -> None:
        seen.write_bytes(b"".join(once.engine.world.nonce() for _ in range(100)))

    in_a_forked_child(child)
    raw = seen.read_bytes()
    theirs = {raw[start : start + 16] for start in range(0, len(raw), 16)}
    assert len(theirs) == 100
    assert not theirs & {once.engine.world.nonce() for _ in range(200)}


@pytest.mark.fault("F34")
def test_a_memory_store_refuses_to_pretend_in_a_forked_child() -> None:
    once = Once("memory://")
    once.run("order 7", work)

    def child() -> None:
        with pytest.raises(StoreBroken, match="fork"):
            once.run("order 8", work)

    in_a_forked_child(child)
    once.close()


@pytest.mark.fault("F34")
def test_an_async_client_works_on_in_a_forked_child(tmp_path: Path) -> None:
    once = AsyncOnce(SQLiteStore(tmp_path / "once.db"))
    asyncio.run(once.run("before the fork", async_work))

    def child() -> None:
        async def both() -> list[str]:
            return [(await once.outcome(key, async_work)).kind for key in ("before the fork", "after the fork")]

        assert asyncio.run(both()) == ["replayed", "executed"]

    in_a_forked_child(child)

    async def look_and_close() -> str:
        try:
            return (await once.outcome("after the fork", async_work)).kind
        finally:
            await once.close()

    assert asyncio.run(look_and_close()) == "replayed"


async def async_work() -> str:
    return "done"


def in_a_spawned_child(client: Once, key: str, answers: Any) -> None:
    outcome: Outcome[str] = client.outcome(key, work)
    answers.put((outcome.kind, outcome.value, client.policy.lease, client.key(key).scope.text))
    client.close()


@pytest.mark.fault("F34")
def test_a_pickled_client_works_in_a_spawned_process_with_the_same_keys_and_choices(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path / 'once.db'}", app="billing", tenant="acme", lease="7s")
    once.run("order 7", work)
    context = get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=in_a_spawned_child, args=(once, "order 7", answers))
    child.start()
    kind, value, lease, scope = answers.get(timeout=30)
    child.join(30)
    assert (kind, value, lease) == ("replayed", "done", 7_000_000)
    assert scope == once.key("order 7").scope.text
    assert child.exitcode == 0
    once.close()


@pytest.mark.fault("F34")
@pytest.mark.parametrize("face_type", [Once, AsyncOnce])
def test_a_client_on_a_store_object_says_why_it_cannot_be_pickled(face_type: Any) -> None:
    with pytest.raises(TypeError, match="make it from a URL"):
        pickle.dumps(face_type(MemoryStore()))


# ── F35: re-entry ──


@pytest.mark.fault("F35")
@pytest.mark.timeout(30)
def test_work_that_calls_itself_under_the_same_key_is_told_instead_of_waiting_for_itself(face: Face) -> None:
    def outer() -> str:
        with pytest.raises(Reentrant, match="already held by the call"):
            face.run("order 7", outer)
        with pytest.raises(Reentrant):
            face.map(outer_item, ["order 7"], key=lambda item: item, name="shared")[0].unwrap()
        assert face.run("order 8", outer_other) == "other key"
        return "done"

    def outer_item(item: str) -> None:
        pytest.fail("must not run")

    def outer_other() -> str:
        return "other key"

    assert face.run("order 7", outer) == "done"


@pytest.mark.fault("F35")
@pytest.mark.timeout(30)
def test_a_block_inside_a_block_of_the_same_key_is_told_also_through_one_in_between(face: Face) -> None:
    with face.claim("order 7"), face.claim("order 8"):
        with pytest.raises(Reentrant), face.claim("order 7"):
            pass
        assert face.read("order 7").state is State.PENDING


@pytest.mark.fault("F35")
def test_a_key_that_was_completed_inside_its_block_may_be_asked_for_again_there(face: Face) -> None:
    with face.claim("order 7") as claim:
        claim.complete("done")
        with pytest.raises(AlreadyDone), face.claim("order 7"):
            pass


class Interrupter:
    """A clock that, asked inside of a store call, makes another call on the same thread, as a signal handler would."""

    def __init__(self) -> None:
        self.call: Callable[[], Any] | None = None
        self.answers: list[Any] = []

    def now(self) -> int:
        call, self.call = self.call, None
        if call is not None:
            try:
                self.answers.append(call())
            except Exception as error:
                self.answers.append(error)
        return time.time_ns() // 1000


@pytest.mark.fault("F35")
@pytest.mark.timeout(30)
@pytest.mark.parametrize("verb", ["run", "read", "forget", "close"])
def test_a_call_from_a_signal_handler_inside_a_store_call_is_refused_and_the_outer_one_unharmed(
    tmp_path: Path, verb: str
) -> None:
    clock = Interrupter()
    once = Once(SQLiteStore(tmp_path / "once.db", clock=clock))
    once.run("before", work)
    inside = {
        "run": lambda: once.run("inner", work),
        "read": lambda: once.read("inner"),
        "forget": lambda: once.forget("inner"),
        "close": lambda: run(once.store.close()),
    }
    clock.call = inside[verb]
    assert once.run("outer", work) == "done"
    assert [type(answer) for answer in clock.answers] == [Reentrant]
    assert once.outcome("outer", work).replayed
    assert once.outcome("inner", work).executed
    once.close()


@pytest.mark.fault("F35")
@pytest.mark.timeout(30)
@pytest.mark.parametrize("cache", [0, 10])
def test_in_memory_it_is_answered_and_each_key_is_done_once(cache: int) -> None:
    clock = Interrupter()
    once = Once(MemoryStore(clock=clock), cache=cache)
    runs: list[str] = []
    clock.call = lambda: once.outcome("other", runs.append, "other")
    assert once.outcome("own", runs.append, "own").executed
    clock.call = lambda: once.outcome("same", runs.append, "same")
    assert once.outcome("same", runs.append, "same").replayed
    assert [answer.executed for answer in clock.answers] == [True, True]
    assert runs == ["other", "own", "same"]
    once.close()


STORM = """
    import itertools, random, signal, sys, time
    from onceward import Once, Reentrant

    once = Once(sys.argv[1], cache=int(sys.argv[2]))
    numbers = itertools.count()
    refused = 0

    def work(number: int) -> int:
        return number

    def handler(*_):
        global refused
        mine = next(numbers)
        try:
            once.run(f"handler {mine % 500}", work, mine % 500)
        except Reentrant:
            refused += 1
        arm()  # only now: handlers that interrupt each other would only test Python's stack

    def arm():
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.0005))

    once.run("first", work, 0)  # connected, and everything is imported
    signal.signal(signal.SIGALRM, handler)
    arm()
    began = time.monotonic()
    done = 0
    locked = sys.argv[1] != "memory://"  # only where a call can meet another one of its own thread is it refused
    while time.monotonic() < began + 1.0 or (
        not (done > 50 and (refused or not locked)) and time.monotonic() < began + 15
    ):
        once.run(f"main {done % 500}", work, done % 500)
        done += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    once.close()
    print(done > 50, next(numbers) > 50, refused > 0 or not locked, flush=True)
"""


@pytest.mark.fault("F35")
@pytest.mark.parametrize(("url", "cache"), [("memory://", 0), ("memory://", 100), ("sqlite:///{}/once.db", 0)])
def test_a_storm_of_signals_whose_handler_claims_never_deadlocks(tmp_path: Path, url: str, cache: int) -> None:
    script = textwrap.dedent(STORM)
    done = subprocess.run(
        [sys.executable, "-c", script, url.format(tmp_path), str(cache)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout.strip() == "True True True", done.stderr
    assert done.returncode == 0


# ── F36: completing twice ──


@pytest.mark.fault("F36")
def test_completing_twice_with_the_same_result_is_fine_and_with_another_an_error(face: Face) -> None:
    with face.claim("order 7") as claim:
        claim.complete({"total": 12})
        claim.complete({"total": 12})
        with pytest.raises(AlreadyCompleted):
            claim.complete({"total": 13})
    entry = face.read("order 7")
    assert (entry.state, entry.value) == (State.COMPLETED, {"total": 12})


@pytest.mark.fault("F36")
def test_completing_after_the_block_has_ended_changes_nothing(face: Face) -> None:
    with face.claim("order 7") as claim:
        pass
    claim.complete(None)
    with pytest.raises(AlreadyCompleted):
        claim.complete("late")
    assert face.read("order 7").value is None


@pytest.mark.fault("F36")
def test_a_failure_after_the_result_was_recorded_does_not_undo_it(face: Face) -> None:
    with pytest.raises(ValueError, match="afterwards"), face.claim("order 7") as claim:
        claim.complete("sent")
        raise ValueError("afterwards")
    entry = face.read("order 7")
    assert (entry.state, entry.value) == (State.COMPLETED, "sent")


# ── F37: stopping ──

STOPPED = """
    import signal, sys, threading, time
    from onceward import Once, Stopping

    once = Once(sys.argv[1], lease="1s")
    signal.signal(signal.SIGTERM, lambda *_: once.stop())

    def slow() -> str:
        print("working", flush=True)
        time.sleep(1.5)
        return "finished"

    def refused() -> None:
        print("must not run")

    print(once.outcome("running", slow).kind, flush=True)
    try:
        once.run("next", refused)
    except Stopping:
        print("stopping", flush=True)
    once.close()
    print([one.name for one in threading.enumerate() if "onceward" in one.name], flush=True)
"""


@pytest.mark.fault("F37")
def test_sigterm_stops_claiming_finishes_what_runs_and_joins_the_keeper(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'once.db'}"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STOPPED), url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "working\n"
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert out.splitlines() == ["executed", "stopping", "[]"], err
    assert child.returncode == 0
    assert err == ""


@pytest.mark.fault("F37")
def test_a_stopped_client_claims_nothing_but_lets_running_work_record_its_result(face: Face) -> None:
    with face.claim("order 7") as claim:
        face.once.stop()
        with pytest.raises(Stopping):
            face.run("order 8", work)
        claim.complete("done")
    assert len(face.told("completed")) == 1


@pytest.mark.fault("F37")
def test_whoever_waits_for_somebody_else_stops_waiting(face: Face) -> None:
    face.silent_owner("order 7")
    waiting = face.another(wait="1m")
    answer = waiting.start(lambda: waiting.claim("order 7").__enter__())
    time.sleep(0.1)
    began = time.monotonic()
    waiting.once.stop()
    with pytest.raises(StillRunning):
        answer.result(10)
    assert time.monotonic() - began < 2


@pytest.mark.fault("F37")
def test_closing_waits_for_running_work_and_then_joins_the_keeper(place: Place) -> None:
    once = Once(place.open(), lease="300ms")
    begun = threading.Event()
    kinds: list[str] = []

    def slow() -> str:
        begun.set()
        time.sleep(0.4)
        return "done"

    thread = threading.Thread(target=lambda: kinds.append(once.outcome("order 7", slow).kind))
    thread.start()
    assert begun.wait(5)
    keeper = once.keeper._thread
    once.close()
    assert keeper is not None
    assert not keeper.is_alive()
    thread.join(5)
    assert kinds == ["executed"]


# ── F38: no thread ──


@pytest.mark.fault("F38")
def test_without_a_thread_to_renew_it_the_claim_is_given_back_before_the_effect(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert face.read("order 7") is None  # connected; the event loop's helpers are started
    start = threading.Thread.start

    def cannot_start(thread: threading.Thread) -> None:
        if thread.name == "onceward-keeper":
            raise RuntimeError("can't start new thread")
        start(thread)

    calls: list[int] = []

    def counted() -> str:
        calls.append(1)
        return "done"

    monkeypatch.setattr(threading.Thread, "start", cannot_start)
    with pytest.raises(ClaimError, match="can't start"):
        face.run("order 7", counted)
    with pytest.raises(ClaimError, match="can't start"), face.claim("order 8"):
        calls.append(2)
    outcomes = face.start(lambda: face.map(counted_item, [1, 2], key=lambda item: f"item {item}"))
    with pytest.raises(ClaimError, match="can't start"):
        outcomes.result(20)
    assert calls == []
    assert not face.keeper._holds
    monkeypatch.setattr(threading.Thread, "start", start)
    outcome = face.another(on_running="raise").outcome("order 7", counted)
    assert (outcome.kind, outcome.attempt) == ("executed", 1)
    items = face.another(on_running="raise").map(counted_item, [1, 2], key=lambda item: f"item {item}")
    assert [one.kind for one in items] == ["executed", "executed"], "each key of the batch was given back"


def counted_item(item: int) -> int:
    return item


# ── F39: batches in different orders ──


@pytest.mark.fault("F39")
@pytest.mark.timeout(60)
def test_batches_in_opposite_orders_neither_deadlock_nor_run_anything_twice(face: Face) -> None:
    runs: list[int] = []

    def counted(item: int) -> int:
        runs.append(item)
        time.sleep(0.001)
        return item * item

    items = list(range(40))
    workers = [face, face.another(), face.another(), face.another()]
    orders = [items, items[::-1], items[20:] + items[:20], items[::2] + items[1::2]]
    answers = [worker.start(worker.map, counted, order) for worker, order in zip(workers, orders, strict=True)]
    for answer, order in zip(answers, orders, strict=True):
        assert [outcome.unwrap() for outcome in answer.result(30)] == [item * item for item in order]
    assert sorted(runs) == items


def test_a_client_that_was_closed_says_so(place: Place) -> None:
    once = Once(place.open())
    once.close()
    with pytest.raises((Stopping, ConfigurationError)):
        once.run("order 7", work)
