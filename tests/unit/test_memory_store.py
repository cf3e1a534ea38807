"""The memory store stays as small as what it remembers."""

from __future__ import annotations

import functools
import linecache
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from onceward import Once
from onceward.protocol.ports import Filter
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Complete, Release, Renewal, Verdict
from onceward.runtime.threads import run
from onceward.stores import MemoryStore
from onceward.stores.memory import records as memory_records
from onceward.stores.memory import store as memory
from onceward.testing import FakeClock
from tests.raw_memory import expiry_entries_of

LEASE = 60_000_000
FILES = (memory.__file__, memory_records.__file__)


def answer_to(store: MemoryStore, request: AnyRequest) -> Answer:
    if isinstance(request, ClaimRequest):
        return run(store.claim([request], timeout=1))[0]
    if isinstance(request, Renewal):
        return run(store.renew([request], timeout=1))[0]
    return run(store.settle([request], timeout=1))[0]


def breaks() -> None:
    raise ConnectionError


@pytest.mark.mission("A4")
def test_one_key_that_fails_again_and_again_leaves_nothing_behind() -> None:
    store = MemoryStore(max_records=10)
    once = Once(store)
    for _ in range(2_000):
        once.outcome("k", breaks)
    assert sum(run(store.counts(timeout=1)).values()) == 1
    assert expiry_entries_of(store) <= 2 * 10 + 64


def test_what_was_compacted_is_still_evicted_when_its_time_is_over() -> None:
    store = MemoryStore(max_records=2)
    once = Once(store, window="1ms")
    for _ in range(200):
        once.outcome("fails", breaks)
    for x in range(20):  # each needs the room of the one before
        once.forget(x - 1)
        assert once.run(x, int) == 0
    assert sum(run(store.counts(timeout=1)).values()) <= 2


def between(step: int, call: Callable[[], Answer], other: Callable[[], Any]) -> Answer | None:
    """Run `call`, with `other` before its n-th step, as another thread would. Return None if it has fewer steps."""
    steps = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        if frame.f_code.co_filename not in FILES:
            return None
        place = linecache.getline(frame.f_code.co_filename, frame.f_lineno - 1)
        steps += event == "line" and "no signal handler runs there" not in place  # two lines, but one step
        if steps == step:
            sys.settrace(None)
            other()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        answer = call()
    finally:
        sys.settrace(before)
    return answer if steps >= step else None


def claim_of(nonce: bytes, id: bytes = b"k") -> ClaimRequest:
    return ClaimRequest(id, "app/work", "k", nonce, LEASE)


@pytest.mark.mission("A1")
def test_whenever_another_claim_comes_in_between_one_of_the_two_gets_the_key() -> None:
    step, seen = 0, set[Verdict]()
    while True:
        step += 1
        store, others = MemoryStore(), list[Answer]()
        claim = functools.partial(answer_to, store)
        other = functools.partial(claim, claim_of(b"b"))
        answer = between(step, functools.partial(claim, claim_of(b"a")), lambda: others.append(other()))  # noqa: B023 (called at once)
        if answer is None:
            break
        verdicts = {answer.verdict, others[0].verdict}
        assert verdicts == {Verdict.ACQUIRED, Verdict.RUNNING}, step
        seen.add(answer.verdict)
    assert seen == {Verdict.ACQUIRED, Verdict.RUNNING}
    assert step > 6


@pytest.mark.mission("A1")
def test_whenever_the_key_is_forgotten_in_between_a_completion_counts_or_is_refused() -> None:
    step, seen = 0, set[Verdict]()
    while True:
        step += 1
        store = MemoryStore()
        granted = answer_to(store, claim_of(b"a")).record
        assert granted is not None
        complete = Complete(granted.id, granted.token, granted.nonce, b"done")
        forget = functools.partial(store.forget, [b"k"], force=True, timeout=1)
        answer = between(step, functools.partial(answer_to, store, complete), lambda: run(forget()))  # noqa: B023 (called at once)
        if answer is None:
            break
        record = run(store.read([b"k"], timeout=1))[0].record
        assert record is not None
        assert record.state is RecordState.FREE, step
        seen.add(answer.verdict)
    assert seen == {Verdict.OK, Verdict.LOST}


class Overtaken(FakeClock):
    """Runs `meanwhile` once, right after the store has read the clock."""

    meanwhile: Callable[[], object] | None = None

    def now(self) -> int:
        now, meanwhile = super().now(), self.meanwhile
        self.meanwhile = None
        if meanwhile is not None:
            meanwhile()
        return now


@pytest.mark.parametrize("asks", ["claim", "read"])
def test_no_answer_is_older_than_the_record_that_it_shows(asks: str) -> None:
    clock = Overtaken()
    store = MemoryStore(clock=clock)
    granted = answer_to(store, claim_of(b"a")).record
    assert granted is not None

    def renew_later() -> None:
        clock.advance("1s")
        answer_to(store, Renewal(granted.id, granted.token, granted.nonce, LEASE))

    clock.meanwhile = renew_later
    answer = answer_to(store, claim_of(b"b")) if asks == "claim" else run(store.read([b"k"], timeout=1))[0]
    assert answer.record is not None
    assert answer.record.updated_at > granted.updated_at
    assert answer.now >= answer.record.updated_at


@pytest.mark.mission("A1")
def test_two_threads_that_a_debugger_stops_at_every_line_do_not_both_get_a_key() -> None:
    """Tracing lets other threads run between any two lines, also between the read and the change."""

    def slowly(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            time.sleep(0.001)
        return slowly

    def traced(store: MemoryStore, line: threading.Barrier, nonce: bytes) -> Verdict:
        line.wait(60)
        sys.settrace(slowly)
        try:
            return answer_to(store, claim_of(nonce)).verdict
        finally:
            sys.settrace(None)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            store, line = MemoryStore(), threading.Barrier(2)
            answer_to(store, claim_of(b"before"))
            run(store.forget([b"k"], force=True, timeout=1))  # so that there is a record to be replaced
            verdicts = list(pool.map(functools.partial(traced, store, line), (b"a", b"b")))
            assert sorted(verdicts) == [Verdict.ACQUIRED, Verdict.RUNNING]


@pytest.mark.fault("F27")
def test_a_released_claim_cannot_be_completed() -> None:
    """Its owner has the very record that is stored, but the record no longer has an owner."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    asked = ClaimRequest(b"id", "scope", "key", b"first", LEASE, after_crash=AfterCrash.VERIFY)
    assert answer_to(store, asked).verdict is Verdict.ACQUIRED
    clock.advance(LEASE / 1_000_000)
    taken = answer_to(store, replace(asked, nonce=b"second")).record
    assert taken is not None
    assert taken.ask_first
    given_back = answer_to(store, Release(b"id", taken.token, b"second")).record
    assert given_back is not None
    assert (given_back.state, given_back.released) == (RecordState.PENDING, True)
    late = Complete(b"id", taken.token, b"second", b"done", b"done")
    assert answer_to(store, late).verdict is Verdict.LOST


def test_a_completion_wakes_callers_that_wait_for_its_key() -> None:
    store, woken = MemoryStore(), []
    record = answer_to(store, ClaimRequest(b"id", "scope", "key", b"nonce", LEASE)).record
    assert record is not None
    store.watch(b"id", lambda: woken.append("woken"))
    for _ in range(2):  # the second says nothing new, but its reply may be the first that arrives
        assert answer_to(store, Complete(b"id", record.token, b"nonce", b"", b"")).verdict is Verdict.OK
    assert woken == ["woken"] * 2


def test_records_without_a_note_do_not_keep_an_empty_one_each() -> None:
    store = MemoryStore()
    with Once(store) as once:

        @once(key="{order}")
        def work(order: int) -> int:
            return order

        work(1)
        work(2)
    first, second = run(store.scan(Filter(), cursor=None, limit=10, timeout=1)).records
    assert first.note is second.note
    assert first.arguments is second.arguments
