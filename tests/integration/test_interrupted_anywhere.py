"""An interrupt may come between any two steps of our own code. Whenever it does, it locks no key and keeps no lease."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import onceward
from onceward import (
    AsyncOnce,
    ConfigurationError,
    Failed,
    LeaseOverdue,
    MemoryStore,
    Once,
    OutcomeUnknown,
    State,
    Step,
    StepRun,
    StoreBroken,
    Unknown,
    applied,
    inconclusive,
    not_applied,
    verify,
)
from onceward.core.held import current
from onceward.model.lock import OPERATION
from onceward.ports import Store
from tests.faces import Face, Place
from tests.faulty import FaultyStore, Wire

HOME = Path(onceward.__file__).parent
OURS = {str(path) for folder in ("core", "worlds") for path in (HOME / folder).glob("*.py")}


class Alarm(BaseException):
    """What a signal handler raises."""


class AlarmError(Exception):
    """The same, of a kind that `except Exception` catches."""


def interrupted_at(
    step: int, call: Callable[[], Any], alarm: type[BaseException], behind: str = "", ours: Collection[str] = OURS
) -> bool:
    """Call it, and raise at that step of our own code, as a signal handler would; tells whether it got that far.

    `behind`: count the steps from the first line of that function on.
    """
    steps = -1 if behind else 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename not in ours or frame.f_code.co_name == "__del__":  # nothing gets out of there
            return None
        if event == "line" and steps < 0:
            steps += frame.f_code.co_name == behind
        elif event in ("call", "line") and steps >= 0:
            steps += 1
            if steps == step:
                raise alarm
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except alarm:
        return True
    finally:
        sys.settrace(before)
    return steps >= step


@pytest.fixture
def unheard() -> Iterator[None]:
    """A coroutine whose first step was interrupted is never awaited, and says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


def block(once: Once, key: str, work: Callable[[], None]) -> None:
    with once.claim(key):
        work()


def in_bulk(once: Once, key: str, work: Callable[[], None]) -> None:
    once.map(lambda _item: work(), [key, key + " and more"], key="{_item}", name="shared")


WAYS: dict[str, Callable[[Once, str, Callable[[], None]], Any]] = {
    "run": lambda once, key, work: once.run(key, work),
    "block": block,
    "map": in_bulk,
}


class Refused(Exception):
    """The last word of a remote."""


@pytest.mark.fault("F27", "F74")
@pytest.mark.usefixtures("unheard")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("refused", [False, True])
def test_a_saga_that_is_interrupted_anywhere_goes_on_to_its_end_without_a_person(refused: bool) -> None:
    """What is done or undone is so under one key, and the next delivery finds nothing locked or parked."""
    acts: dict[str, str] = {}

    def reserve(run: StepRun) -> None:
        acts[run.key] = "reserve"

    def free(run: StepRun) -> None:
        acts[run.undo_key] = "free"

    def charge(run: StepRun) -> None:
        acts[run.key] = "charge"
        if refused:
            raise Refused

    with Once(MemoryStore()) as once:
        charged = Step("charge", charge, kind="pivot", final=Refused)
        order = once.saga("order", Step("reserve", reserve, undo=free), charged, key="order:{number}")
        number, reached = 0, True
        while reached:
            number += 1
            acts.clear()
            reached = interrupted_at(number, functools.partial(order.outcome, number=number), Alarm)
            outcome = order.outcome(number=number)
            assert outcome.kind in (("failed",) if refused else ("executed", "replayed")), f"interrupted at {number}"
            assert sorted(acts.values()) == (["charge", "free", "reserve"] if refused else ["charge", "reserve"])
            assert not once.keeper._holds


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("unheard")
@pytest.mark.parametrize("alarm", [Alarm, AlarmError])
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_at_any_step_leaves_no_key_locked(store: Store, way: str, alarm: type[BaseException]) -> None:
    once = Once(store, lease="1h", fingerprint="none")
    once.run("first", int)  # connected, and the keeper's thread is there
    done: list[str] = []
    step = 1
    while True:
        key, here = f"order {step}", contextvars.Context()

        def call(key: str = key) -> None:
            WAYS[way](once, key, lambda: done.append(key))

        if not here.run(interrupted_at, step, call, alarm):
            break
        assert not once.keeper._holds, f"step {step}"
        assert here.run(current) is None, f"step {step}"
        for one in (key, key + " and more"):
            entry = once.read(one)
            assert entry is None or entry.state in (State.COMPLETED, State.FAILED, State.FREE), f"step {step}: {entry}"
        step += 1
    assert step > 100
    assert len(done) == len(set(done)) or way == "map"
    once.close()


BLOCKS = {str(HOME / name) for name in ("blocks.py", "claims.py", "locks.py")}


def locked(once: Once, key: str, work: Callable[[], None]) -> None:
    with once.lock(key):
        work()


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("unheard")
@pytest.mark.parametrize("way", [block, locked])
def test_an_interrupt_at_any_step_of_a_block_itself_keeps_no_lease(
    store: Store, way: Callable[[Once, str, Callable[[], None]], None]
) -> None:
    """Before the work the key is given back. What strikes the end before it begins is as a crash: the lease lapses."""
    once = Once(store, lease="1h", fingerprint="none")
    once.run("first", int)
    step, begun, lapsed = 1, set(), 0
    while True:
        key, here = f"order {step}", contextvars.Context()

        def call(key: str = key) -> None:
            way(once, key, lambda: begun.add(key))

        if not here.run(interrupted_at, step, call, Alarm, ours=BLOCKS):
            break
        assert not once.keeper._holds, f"step {step}"
        assert here.run(current) is None, f"step {step}"
        entry = once.read(key, name=OPERATION if way is locked else None)
        if entry is not None and entry.state is State.PENDING:
            assert key in begun, f"step {step}"
            lapsed += 1
        step += 1
    assert step > 15
    assert lapsed < 4
    once.close()


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("unheard")
def test_work_that_returned_before_the_interrupt_is_not_done_again(store: Store) -> None:
    """Once the result is ours to record, an interrupt at any step still records it."""
    once = Once(store, lease="1h")
    once.run("first", int)
    step = 1
    while interrupted_at(step, functools.partial(once.run, f"order {step}", str), Alarm, behind="record_at_once"):
        entry = once.read(f"order {step}")
        assert entry is not None
        assert entry.state is State.COMPLETED, f"step {step}"
        step += 1
    assert step > 30
    once.close()


STORM = """
    import random, signal, sys
    from onceward import Once
    from onceward.errors import StoreUnavailable

    once = Once(f"sqlite:///{sys.argv[1]}?synchronous=NORMAL", lease="1h")

    @once(key="{order}")
    def work(order: int) -> int:
        return order

    def interrupt(*_):
        raise KeyboardInterrupt

    work(-1)
    signal.signal(signal.SIGALRM, interrupt)
    heard = 0
    for order in range(1500):
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-5, 8e-4))
                work(order)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            heard += 1
    states = {}
    for order in range(1500):
        entry = work.read(order)
        state = "none" if entry is None else entry.state.value
        states[state] = states.get(state, 0) + 1
    assert heard > 20, heard
    assert not once.keeper._holds
    assert "PENDING" not in states, states
    assert work(10**6) == 10**6
    once.close()
"""


@pytest.mark.fault("F27")
def test_a_storm_of_signals_leaves_no_key_locked(tmp_path: Path) -> None:
    script = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(STORM), str(tmp_path / "once.db")]
    child = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
    assert child.returncode == 0, child.stderr[-2000:]


class InterruptedOnce(FaultyStore):
    """The first settlement is interrupted, before or after the store has heard of it."""

    def __init__(self, store: Store, *, heard: bool) -> None:
        super().__init__(store, Wire())
        self.heard = heard
        self.sent: list[Any] = []

    async def settle(self, settlements: Any, **how: Any) -> Any:
        self.sent.append(settlements[0])
        if len(self.sent) > 1:
            return await super().settle(settlements, **how)
        if self.heard:
            await super().settle(settlements, **how)
        raise KeyboardInterrupt


@pytest.mark.fault("F27")
@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("way", ["returns", "raises", "completes"])
def test_a_settlement_that_is_interrupted_is_sent_once_more_as_it_was(store: Store, way: str, heard: bool) -> None:
    wire = InterruptedOnce(store, heard=heard)
    once = Once(wire)
    told: list[str] = []
    once.subscribe(lambda event: told.append(event.name))

    def work() -> str:
        if way == "raises":
            raise ValueError
        return "done"

    with pytest.raises(KeyboardInterrupt):
        if way == "completes":
            with once.claim("order 7") as claim:
                claim.complete("done")
        else:
            once.run("order 7", work)
    entry = once.read("order 7")
    assert entry is not None
    assert entry.state is (State.FAILED if way == "raises" else State.COMPLETED)
    assert len(wire.sent) == 2
    assert wire.sent[0] is wire.sent[1]
    assert told.count("failed" if way == "raises" else "completed") == 1
    once.close()


# ── while `find` looks ──


def a_crash(face: Face, **settings: Any) -> None:
    face.silent_owner("order 7", after_crash=verify(lambda: inconclusive), **settings)
    face.clock.advance("2h")


@pytest.mark.fault("F27", "F28")
@pytest.mark.parametrize("way", ["run", "block"])
def test_an_interrupt_while_verify_looks_gives_the_key_back_unverified(face: Face, way: str) -> None:
    answers: list[Any] = [KeyboardInterrupt(), applied("sent")]

    def find() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    a_crash(face)
    sure = face.another(after_crash=verify(find), lease="1h", on_running="raise")
    with pytest.raises(KeyboardInterrupt):
        if way == "run":
            sure.run("order 7", lambda: pytest.fail("must not run"))
        else:
            with sure.claim("order 7"):
                pytest.fail("must not enter")
    assert not sure.keeper._holds
    entry = sure.read("order 7")
    assert (entry.state, entry.attempt) == (State.PENDING, 1)
    outcome = sure.outcome("order 7", lambda: pytest.fail("must not run"))
    assert (outcome.kind, outcome.reason, outcome.value) == ("replayed", "verified", "sent")


@pytest.mark.fault("F28")
async def test_a_cancellation_while_verify_looks_gives_the_key_back_unverified(place: Place) -> None:
    begun = asyncio.Event()

    async def find() -> Any:
        begun.set()
        await asyncio.sleep(60)

    async def never() -> None:
        pytest.fail("must not run")

    once = AsyncOnce(place.open(), after_crash=verify(find), lease="1h")
    await asyncio.create_task(once.claim("order 7").__aenter__())  # in a context of its own
    once.keeper._holds.clear()  # it is not heard of again
    place.clock.advance("2h")
    task = asyncio.create_task(once.run("order 7", never))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    entry = await once.read("order 7")
    assert entry is not None
    assert (entry.state, entry.attempt, entry.record.released) == (State.PENDING, 1, True)
    assert not once.keeper._holds
    await once.close()


@pytest.mark.fault("F27")
def test_an_interrupt_while_a_failure_is_looked_up_lets_the_next_claimant_ask_at_once(face: Face) -> None:
    answers: list[Any] = [KeyboardInterrupt(), not_applied]
    done: list[str] = []

    def find() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def work() -> str:
        done.append("begun")
        if len(done) == 1:
            raise ConnectionError
        return "done"

    sure = face.another(after_crash=verify(find), lease="1h", on_running="raise")
    with pytest.raises(KeyboardInterrupt):
        sure.run("order 7", work)
    assert answers == [not_applied], "it is the next claimant who asks again"
    assert not sure.keeper._holds
    assert sure.run("order 7", work) == "done"
    assert answers == []


# ── cancelled twice, or while the store is in trouble ──


class SlowStore(FaultyStore):
    """Every call takes a few turns of the loop, as over a network."""

    def __init__(self, store: Store, wire: Wire) -> None:
        super().__init__(store, wire)
        self.inline = False

    async def _through(self, *call: Any) -> Any:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super()._through(*call)


@pytest.mark.fault("F28")
@pytest.mark.parametrize("bulk", [False, True])
async def test_cancelled_twice_at_any_turn_leaves_no_key_locked(bulk: bool) -> None:
    once = AsyncOnce(SlowStore(MemoryStore(), Wire()), lease="1h", fingerprint="none")

    async def work(_item: Any = None) -> None:
        await asyncio.sleep(0)

    for first in range(16):
        for second in range(8):
            key = f"{first} {second}"
            call = once.map(work, [key, key + "b"], key="{_item}", name="shared") if bulk else once.run(key, work)
            task = asyncio.ensure_future(call)
            for _ in range(first):
                await asyncio.sleep(0)
            task.cancel()
            for _ in range(second):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            for one in (key, key + "b"):
                entry = await once.read(one)
                assert entry is None or entry.state is not State.PENDING, key
            assert not once.keeper._holds
    await once.close()


@pytest.mark.fault("F28")
async def test_what_is_left_of_a_cancelled_batch_is_released_in_one_call() -> None:
    wire = Wire()
    once = AsyncOnce(SlowStore(MemoryStore(), wire))
    begun = asyncio.Event()

    async def work(item: int) -> None:
        begun.set()
        await asyncio.sleep(60)

    task = asyncio.ensure_future(once.map(work, range(100), key="{item}"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.calls["settle"] == 2  # the one that was begun, and all the others
    await once.close()


@pytest.mark.fault("F28", "F50")
@pytest.mark.parametrize("on_store_down", ["raise", "run"])
async def test_a_release_that_fails_does_not_hide_the_cancellation(on_store_down: Any) -> None:
    wire = Wire()
    wire.lose_requests("settle")
    once = AsyncOnce(SlowStore(MemoryStore(), wire), on_store_down=on_store_down)

    async def never() -> None:
        pytest.fail("cancelled work must not run")

    task = asyncio.ensure_future(once.run("order 7", never))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.calls["settle"] == 1
    await once.close()


@pytest.mark.fault("F28")
async def test_a_settlement_is_told_even_if_its_caller_was_cancelled(place: Place) -> None:
    once = AsyncOnce(SlowStore(place.open(), Wire()))
    told: list[str] = []
    once.subscribe(lambda event: told.append(event.name))
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    task = asyncio.ensure_future(once.run("order 7", work))
    await done.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["acquired", "completed"]
    await once.close()


# ── a store that will not come back ──


@pytest.mark.fault("F51")
def test_work_that_ends_after_the_client_was_closed_is_unknown_at_once(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/once.db", lease="1h")
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(10)

    outcomes: list[Any] = []
    worker = threading.Thread(target=lambda: outcomes.append(once.outcome("order 7", work)))
    worker.start()
    assert begun.wait(10)
    once.close(timeout=0)
    since = time.monotonic()
    go.set()
    worker.join(20)
    assert isinstance(outcomes[0], Unknown)
    assert time.monotonic() - since < 10


class Broken(MemoryStore):
    """Settles nothing, in a way that does not pass."""

    asked = 0

    async def settle(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise StoreBroken("the file was replaced")


@pytest.mark.fault("F51")
def test_a_broken_store_is_not_asked_again_for_a_whole_lease() -> None:
    store = Broken()
    once = Once(store, lease="1h")
    assert isinstance(once.outcome("order 7", int), Unknown)
    assert store.asked == 1
    once.close()


# ── what users give us to call ──


@pytest.mark.parametrize("delay", [lambda _: 1 / 0, lambda _: "soon", lambda _: None, lambda _: -5])
def test_a_retry_delay_that_makes_no_sense_hides_no_failure(face: Face, delay: Any) -> None:
    hasty = face.another(retry_delay=delay, lease="1h")

    def work() -> None:
        raise ValueError("no such customer")

    with pytest.raises(ValueError, match="no such customer"):
        hasty.run("order 7", work)
    entry = hasty.read("order 7")
    assert (entry.state, entry.record.retry_at) == (State.FAILED, entry.record.updated_at)
    assert len(hasty.told("retry_delay_failed")) == 1
    assert not hasty.keeper._holds


def test_an_async_find_is_refused_where_nothing_can_await_it() -> None:
    async def find(order: int) -> Any:
        return not_applied

    once = Once(MemoryStore())
    with pytest.raises(ConfigurationError, match="cannot await"):

        @once(key="{order}", after_crash=verify(find))
        def work(order: int) -> None: ...

    with pytest.raises(ConfigurationError, match="cannot await"):
        once.claim("order 7", after_crash=verify(find))
    with pytest.raises(ConfigurationError, match="cannot await"):
        once.using(after_crash=verify(find)).run("order 7", int)

    @once(key="{order}", after_crash=verify(find))
    async def fine(order: int) -> None: ...


def test_a_find_that_gives_an_awaitable_to_a_blocking_call_is_no_answer(place: Place) -> None:
    face = Face(place)

    async def look() -> Any:
        return not_applied

    def find() -> Any:
        return look()

    a_crash(face)
    outcome = face.another(after_crash=verify(find)).outcome("order 7", lambda: pytest.fail("must not run"))
    assert outcome.kind == "parked"
    face.close()


def test_attempts_used_up_under_verify_are_recorded_under_that_name(face: Face) -> None:
    a_crash(face)
    strict = face.another(after_crash=verify(lambda: not_applied), max_attempts=1)
    outcome = strict.outcome("order 7", lambda: pytest.fail("must not run"))
    assert isinstance(outcome, Failed)
    assert (outcome.error_type, outcome.final) == ("AttemptsUsedUp", True)
    record = strict.read("order 7").record
    assert (record.state, record.error_type, record.final) == (State.FAILED, "AttemptsUsedUp", True)


def test_completed_and_then_raised_is_told_as_completed(face: Face) -> None:
    with pytest.raises(ValueError, match="afterwards"), face.claim("order 7") as claim:
        claim.complete("done")
        raise ValueError("afterwards")
    assert [event.name for event in face.events] == ["acquired", "completed"]


@pytest.mark.fault("F51")
def test_a_completion_that_was_not_confirmed_is_not_overwritten_by_a_failure(face: Face) -> None:
    """The effect is done: recording the OutcomeUnknown as its failure would run it again."""
    hasty = face.another(settle_timeout="10ms", lease="1h")
    with pytest.raises(OutcomeUnknown), hasty.claim("order 7") as claim, hasty.store_trouble("settle"):
        claim.complete("done")
    assert hasty.read("order 7").state is State.PENDING
    assert not hasty.keeper._holds


@pytest.mark.fault("F51")
def test_complete_in_is_refused_once_the_lease_is_overdue(sqlite_face: Face) -> None:
    """The record is still ours, but somebody may own it before the caller commits."""
    connection = sqlite3.connect(sqlite_face.place.path, isolation_level=None)
    with pytest.raises(LeaseOverdue), sqlite_face.claim("order 7", lease="10m") as claim:
        sqlite_face.clock.advance("11m")
        connection.execute("BEGIN IMMEDIATE")
        try:
            claim.complete_in(connection, "done")
        finally:
            connection.execute("ROLLBACK")
    connection.close()
