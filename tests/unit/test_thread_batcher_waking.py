"""Threads of one batch wake each other, one after the other, and one of them passes leadership on."""

from __future__ import annotations

import threading

import pytest

from onceward.runtime import thread_batcher
from onceward.runtime.thread_batcher import ThreadBatcher, Waiter
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.batcher_calls import ThreadSend, request, until
from tests.unit.thread_batcher_calls import ask, start


class Watched(ThreadBatcher):
    """Records which thread passes leadership on."""

    def reset(self) -> None:
        super().reset()
        self.handed_on_by: list[int] = []

    def _pass_leadership(self) -> None:
        self.handed_on_by.append(threading.get_ident())
        super()._pass_leadership()


def answered_together(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """Let threads wait for one call. Return their order, which thread woke which, and which passed leadership."""
    woken: list[tuple[int, int]] = []
    wake = Waiter.wake

    def noted(one: Waiter) -> None:
        woken.append((one.ident, threading.get_ident()))
        wake(one)

    send = ThreadSend(2)
    batcher = Watched(send)
    first = in_thread(ask, batcher, request("first"))
    send.reached()
    others = start(batcher, *(request(word) for word in range(number)))
    order = [one.ident for one in batcher._queue]
    send.go(0)
    send.reached()
    monkeypatch.setattr(Waiter, "wake", noted)
    batcher.handed_on_by.clear()
    send.go(1)
    for one in (first, *others):
        one.result(TOO_LONG)
    until(lambda: not batcher._leader_lock.locked())
    return order, woken, batcher.handed_on_by


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_batcher, "MAX_WAKE_CHAIN", TOO_LONG)
    monkeypatch.setattr(thread_batcher, "FIRST_WAIT", TOO_LONG)


@pytest.mark.usefixtures("no_hurry")
def test_waiters_wake_one_after_the_other_and_the_last_one_passes_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    order, woken, handed_on_by = answered_together(5, monkeypatch)
    assert woken == list(zip(order[1:], order, strict=False)), "each is woken by the one before"
    assert handed_on_by == [order[-1]]


@pytest.mark.usefixtures("no_hurry")
def test_of_many_waiters_the_one_in_the_middle_passes_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    order, woken, handed_on_by = answered_together(41, monkeypatch)
    assert woken == list(zip(order[1:], order, strict=False))
    assert handed_on_by == [order[21]]


def test_a_wake_chain_that_takes_long_is_ended_by_the_first_waiter_that_notices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread may have work to do that blocks the interpreter: the others do not wait for it."""
    monkeypatch.setattr(thread_batcher, "MAX_WAKE_CHAIN", -1.0)
    order, woken, handed_on_by = answered_together(5, monkeypatch)
    assert {(one, order[0]) for one in order[1:]} <= set(woken)
    assert order[0] in handed_on_by
