"""The memory store stays as small as what it remembers."""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from onceward import MemoryStore, Once
from onceward.bridge import run
from onceward.model.record import Answer, ClaimRequest, Complete, State, Verdict
from onceward.stores import memory

LEASE = 60_000_000


def breaks() -> None:
    raise ConnectionError


@pytest.mark.mission("A4")
def test_one_key_that_fails_again_and_again_leaves_nothing_behind() -> None:
    store = MemoryStore(max_records=10)
    once = Once(store)
    for _ in range(2_000):
        once.outcome("k", breaks)
    assert len(store._records) == 1
    assert len(store._ending) <= 2 * 10 + 64


def test_what_was_compacted_is_still_evicted_when_its_time_is_over() -> None:
    store = MemoryStore(max_records=2)
    once = Once(store, window="1ms")
    for _ in range(200):
        once.outcome("fails", breaks)
    for x in range(20):  # each needs the room of the one before
        once.forget(x - 1)
        assert once.run(x, int) == 0
    assert len(store._records) <= 2


def between(step: int, call: Callable[[], Answer], other: Callable[[], Any]) -> Answer | None:
    """`call`, with `other` done before its step number so much, as another thread would; None: it has fewer steps."""
    steps = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != memory.__file__:
            return None
        place = linecache.getline(frame.f_code.co_filename, frame.f_lineno - 1)
        steps += event == "line" and "nobody gets a turn" not in place  # a look and a change: two lines, but one step
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
        claim, other = store.answer, functools.partial(store.answer, claim_of(b"b"))
        answer = between(step, functools.partial(claim, claim_of(b"a")), lambda: others.append(other()))  # noqa: B023 (called at once)
        if answer is None:
            break
        verdicts = {answer.verdict, others[0].verdict}
        assert verdicts == {Verdict.ACQUIRED, Verdict.RUNNING}, step
        seen.add(answer.verdict)
    assert seen == {Verdict.ACQUIRED, Verdict.RUNNING}
    assert step > 6


@pytest.mark.mission("A1")
def test_whenever_somebody_forgets_the_key_in_between_a_completion_counts_or_is_refused() -> None:
    step, seen = 0, set[Verdict]()
    while True:
        step += 1
        store = MemoryStore()
        granted = store.answer(claim_of(b"a")).record
        assert granted is not None
        complete = Complete(granted.id, granted.token, granted.nonce, b"done")
        forget = functools.partial(store.forget, [b"k"], force=True, timeout=1)
        answer = between(step, functools.partial(store.answer, complete), lambda: run(forget()))  # noqa: B023 (called at once)
        if answer is None:
            break
        record = run(store.read([b"k"], timeout=1))[0].record
        assert record is not None
        assert record.state is State.FREE, step
        seen.add(answer.verdict)
    assert seen == {Verdict.OK, Verdict.LOST}


def test_where_threads_take_no_turns_a_lock_makes_one_step_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "ONE_AT_A_TIME", False)
    once = Once(MemoryStore(max_records=2), window="1ms")
    for number in range(5):
        assert once.run(number, int) == 0
        once.forget(number)
    assert once.outcome("k", int).executed
    assert len(once.store._records) <= 2  # type: ignore[attr-defined]  # a MemoryStore
