"""An interrupt may come between any two steps of Onceward's code. It never leaves a key locked or a lease renewed."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from onceward import AsyncOnce, Once, RecordState
from onceward.engine.attempt import current
from onceward.engine.execute import run_attempt
from onceward.protocol.operation_names import LOCK
from onceward.protocol.ports import Store
from onceward.sagas import Step, StepContext
from onceward.stores import MemoryStore
from tests.faulty import FaultyNetwork, FaultyStore
from tests.integration.interrupts import HOME, WAYS, Alarm, AlarmError, block, ignore_unawaited, interrupted_at, store

__all__ = ["ignore_unawaited", "store"]  # fixtures, listed here so that pytest finds them


class Refused(Exception):
    """The final refusal of a remote."""


@pytest.mark.fault("F27", "F74")
@pytest.mark.usefixtures("ignore_unawaited")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("refused", [False, True])
def test_a_saga_that_is_interrupted_anywhere_continues_to_its_end_without_a_person(refused: bool) -> None:
    """What is done or undone is so under one key, and the next delivery finds nothing locked or parked."""
    acts: dict[str, str] = {}

    def reserve(run: StepContext) -> None:
        acts[run.key] = "reserve"

    def free(run: StepContext) -> None:
        acts[run.undo_key] = "free"

    def charge(run: StepContext) -> None:
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
            assert not once.heartbeat._holds


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("ignore_unawaited")
@pytest.mark.parametrize("alarm", [Alarm, AlarmError])
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_at_any_step_leaves_no_key_locked(store: Store, way: str, alarm: type[BaseException]) -> None:
    once = Once(store, lease="1h", fingerprint="none")
    once.run("first", int)  # connected, and the heartbeat thread is running
    done: list[str] = []
    step = 1
    while True:
        key, here = f"order {step}", contextvars.Context()

        def call(key: str = key) -> None:
            WAYS[way](once, key, lambda: done.append(key))

        if not here.run(interrupted_at, step, call, alarm):
            break
        assert not once.heartbeat._holds, f"step {step}"
        assert here.run(current) is None, f"step {step}"
        for one in (key, key + " and more"):
            entry = once.read(one)
            assert entry is None or entry.state in (RecordState.COMPLETED, RecordState.FAILED, RecordState.FREE), (
                f"step {step}: {entry}"
            )
        step += 1
    assert step > 100
    assert len(done) == len(set(done)) or way == "map"
    once.close()


BLOCKS = {str(HOME / name) for name in ("operations/block.py", "operations/claim.py", "locks/api.py")}


def locked(once: Once, key: str, work: Callable[[], None]) -> None:
    with once.lock(key):
        work()


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("ignore_unawaited")
@pytest.mark.parametrize("way", [block, locked])
def test_an_interrupt_at_any_step_of_a_block_itself_keeps_no_lease(
    store: Store, way: Callable[[Once, str, Callable[[], None]], None]
) -> None:
    """Before the work, the key is released. An interrupt before the end begins is like a crash: the lease expires."""
    once = Once(store, lease="1h", fingerprint="none")
    once.run("first", int)
    step, begun, lapsed = 1, set(), 0
    while True:
        key, here = f"order {step}", contextvars.Context()

        def call(key: str = key) -> None:
            way(once, key, lambda: begun.add(key))

        if not here.run(interrupted_at, step, call, Alarm, ours=BLOCKS):
            break
        assert not once.heartbeat._holds, f"step {step}"
        assert here.run(current) is None, f"step {step}"
        entry = once.read(key, name=LOCK if way is locked else None)
        if entry is not None and entry.state is RecordState.PENDING:
            assert key in begun, f"step {step}"
            lapsed += 1
        step += 1
    assert step > 15
    assert lapsed < 4
    once.close()


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("ignore_unawaited")
def test_work_that_returned_before_the_interrupt_is_not_done_again(store: Store) -> None:
    """Once the work has returned, an interrupt at any step still records its result."""
    once = Once(store, lease="1h")
    once.run("first", int)
    step = 1
    while interrupted_at(step, functools.partial(once.run, f"order {step}", str), Alarm, behind="settlement"):
        entry = once.read(f"order {step}")
        assert entry is not None
        assert entry.state is RecordState.COMPLETED, f"step {step}"
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
    interrupts = 0
    for order in range(1500):
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-5, 8e-4))
                work(order)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupts += 1
    states = {}
    for order in range(1500):
        entry = work.read(order)
        state = "none" if entry is None else entry.state.value
        states[state] = states.get(state, 0) + 1
    assert interrupts > 20, interrupts
    assert not once.heartbeat._holds
    assert "PENDING" not in states, states
    assert work(10**6) == 10**6
    once.close()
"""


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("ignore_unawaited")
def test_async_work_that_returned_before_the_interrupt_is_not_done_again(store: Store) -> None:
    """Wherever the interrupt comes after the last line of the work, the result is recorded."""
    once = AsyncOnce(store, lease="1h")

    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    async def call(step: int) -> bool:
        lines = -1

        def trace(frame: FrameType, event: str, value: Any) -> Any:
            nonlocal lines
            if event == "return" and frame.f_code is work.__code__ and lines < 0:
                lines = 0 if value == "done" else -1
            elif event == "line" and frame.f_code is run_attempt.__code__ and lines >= 0:
                lines += 1
                if lines == step:
                    raise Alarm
            return trace if frame.f_code in (work.__code__, run_attempt.__code__) else None

        await once.read("first")
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            await once.run(f"order {step}", work)
        except Alarm:
            sys.settrace(before)
            entry = await once.read(f"order {step}")
            assert entry is not None
            assert entry.state is RecordState.COMPLETED, f"step {step}"
        finally:
            sys.settrace(before)
        return lines >= step

    async def main() -> int:
        step = 1
        while await call(step):
            step += 1
        await once.close()
        return step

    assert asyncio.run(main()) > 3


@pytest.mark.fault("F27")
def test_a_storm_of_signals_leaves_no_key_locked(tmp_path: Path) -> None:
    script = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(STORM), str(tmp_path / "once.db")]
    child = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
    assert child.returncode == 0, child.stderr[-2000:]


class InterruptedOnce(FaultyStore):
    """The first settlement is interrupted, before or after the store has applied it."""

    def __init__(self, store: Store, *, applied: bool) -> None:
        super().__init__(store, FaultyNetwork())
        self.applied = applied
        self.sent: list[Any] = []

    async def settle(self, settlements: Any, **how: Any) -> Any:
        self.sent.append(settlements[0])
        if len(self.sent) > 1:
            return await super().settle(settlements, **how)
        if self.applied:
            await super().settle(settlements, **how)
        raise KeyboardInterrupt


@pytest.mark.fault("F27")
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("way", ["returns", "raises", "completes"])
def test_a_settlement_that_is_interrupted_is_sent_once_more_as_it_was(store: Store, way: str, applied: bool) -> None:
    network = InterruptedOnce(store, applied=applied)
    once = Once(network)
    event_names: list[str] = []
    once.subscribe(lambda event: event_names.append(event.name))

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
    assert entry.state is (RecordState.FAILED if way == "raises" else RecordState.COMPLETED)
    assert len(network.sent) == 2
    assert network.sent[0] is network.sent[1]
    assert event_names.count("failed" if way == "raises" else "completed") == 1
    once.close()
