"""Finalizers run in the middle of other calls: they are not steps of those calls, and they still clean up."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from onceward import Once, RecordState
from onceward.protocol.operation_names import LOCK
from onceward.protocol.ports import Store
from onceward.runtime.pending_request import PendingRequest
from onceward.stores import MemoryStore
from tests.collector import resting
from tests.integration.interrupts import HOME, OURS, WAYS, Alarm, ignore_unawaited, interrupted_at, store
from tests.unit.batcher_calls import request

__all__ = ["ignore_unawaited", "store"]  # fixtures, listed here so that pytest finds them


def abandoned_claim(once: Once, key: str) -> object:
    block = once.claim(key)
    contextvars.Context().run(block.__enter__)
    return block


def abandoned_lock(once: Once, key: str) -> object:
    lock = once.lock(key)
    contextvars.Context().run(lock.__enter__)
    return lock


@pytest.fixture
def collector_waits() -> Iterator[None]:
    """Collect no garbage until the test asks for it."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(0)
    yield
    gc.set_threshold(*before)


def waiting(_once: Once, _key: str) -> object:
    """A coroutine that is closed where it waits."""
    loop = asyncio.new_event_loop()
    call = waited_for(PendingRequest(request("theirs"), 0.0, loop.create_future()))
    call.send(None)
    loop.close()
    return call


async def waited_for(one: PendingRequest) -> None:
    """As the flows do it."""
    try:
        await one.future
    except BaseException as error:
        await one.finish_after(error)


@pytest.mark.usefixtures("collector_waits")
@pytest.mark.parametrize("left_behind", [abandoned_claim, waiting])
def test_what_others_left_behind_is_no_step_of_a_call(left_behind: Callable[[Once, str], object]) -> None:
    """Otherwise an interrupt meant for the call hits the finalizer of another claim, and is lost there."""

    def call() -> None:
        gc.set_threshold(1, 1, 1)  # from here on the collector is as eager as it gets
        for _ in range(100):
            [[]].append([])

    with Once(MemoryStore(), lease="1h") as once:
        ring: list[object] = [left_behind(once, "theirs")]
        ring.append(ring)
        del ring
        assert not interrupted_at(1, call, Alarm)
        call()
        gc.collect()
        assert not once.heartbeat._holds, "it was collected afterwards"


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("ignore_unawaited")
@pytest.mark.parametrize("abandoned", [abandoned_claim, abandoned_lock])
def test_an_interrupt_at_any_step_while_an_abandoned_block_ends_keeps_no_lease(
    store: Store, abandoned: Callable[[Once, str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python calls a finalizer once and lets no exception out: if it stops half-way, the lease is renewed forever."""
    lost: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: lost.append(unraisable.exc_type))
    once = Once(store, lease="1h", fingerprint="none")
    once.run("first", int)
    step = 1

    def call(key: str) -> None:
        abandoned(once, key)

    ours = OURS | {str(HOME / "locks" / "api.py")}
    while interrupted_at(step, functools.partial(call, f"order {step}"), Alarm, ours=ours, ends=True):
        assert not once.heartbeat._holds, f"step {step}"
        step += 1
    assert lost.count(Alarm) > 3
    entry = once.read(f"order {step}", name=LOCK if abandoned is abandoned_lock else None)
    assert entry is not None
    assert entry.state is RecordState.PENDING, "as after a crash: whether it was done is unknown"
    once.close()


def left_claim(once: Once) -> object:
    block = once.claim("k")
    with block:
        return block


def left_lock(once: Once) -> object:
    lock = once.lock("k")
    with lock:
        return lock


@pytest.mark.fault("F27")
@pytest.mark.parametrize("left", [left_claim, left_lock])
def test_a_block_that_was_left_goes_without_a_step_of_ours(left: Callable[[Once], object]) -> None:
    """A signal that comes just then raises in the first step that Python takes: in there it would be swallowed."""
    called: list[str] = []

    def trace(frame: FrameType, _event: str, _: object) -> None:
        called.append(frame.f_code.co_qualname)

    with Once(MemoryStore()) as once:
        block = left(once)
        before = sys.gettrace()
        with resting():
            sys.settrace(trace)
            del block
            sys.settrace(before)
    assert called == []


def nothing() -> None: ...


@pytest.mark.fault("F27")
@pytest.mark.usefixtures("ignore_unawaited")
@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_is_interrupted_leaves_nothing_to_the_collector(store: Store, way: str) -> None:
    """Otherwise its arguments live on, and a coroutine that was never awaited says so in the middle of another call."""
    once = Once(store, lease="1h", fingerprint="none")
    once.run("first", int)
    gc.collect()
    with resting(), warnings.catch_warnings(record=True) as said:
        step = 1
        while interrupted_at(step, functools.partial(WAYS[way], once, f"order {step}", nothing), Alarm):
            step += 1
        said.clear()  # raised immediately, as they should be
        warnings.simplefilter("always")
        gc.collect()
        assert [str(one.message) for one in said] == []
    once.close()
