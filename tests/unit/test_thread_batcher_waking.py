"""Threads whose requests went together wake each other, one after the other, and one of them hands the baton on."""

from __future__ import annotations

import threading

import pytest

from onceward.runtime import thread_batcher as thread_lane
from onceward.runtime.thread_batcher import ThreadBatcher, Waiter
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.batcher_calls import ThreadSend, request, until
from tests.unit.thread_batcher_calls import ask, start


class Watched(ThreadBatcher):
    """Notes who hands the baton on."""

    def reset(self) -> None:
        super().reset()
        self.handed_on_by: list[int] = []

    def _pass_leadership(self) -> None:
        self.handed_on_by.append(threading.get_ident())
        super()._pass_leadership()


def told_together(number: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """So many wait for one call: they in their order, who was woken by whom, and who handed the baton on since."""
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
    monkeypatch.setattr(thread_lane, "MAX_WAKE_CHAIN", TOO_LONG)
    monkeypatch.setattr(thread_lane, "FIRST_WAIT", TOO_LONG)


@pytest.mark.usefixtures("no_hurry")
def test_those_who_are_told_wake_one_after_the_other_and_the_last_one_hands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    order, woken, handed_on_by = told_together(5, monkeypatch)
    assert woken == list(zip(order[1:], order, strict=False)), "each is woken by the one before"
    assert handed_on_by == [order[-1]]


@pytest.mark.usefixtures("no_hurry")
def test_of_a_crowd_the_one_in_the_middle_hands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    order, woken, handed_on_by = told_together(41, monkeypatch)
    assert woken == list(zip(order[1:], order, strict=False))
    assert handed_on_by == [order[21]]


def test_a_round_that_takes_long_is_ended_by_whoever_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may have work to do that keeps the interpreter: nobody else waits for that."""
    monkeypatch.setattr(thread_lane, "MAX_WAKE_CHAIN", -1.0)
    order, woken, handed_on_by = told_together(5, monkeypatch)
    assert {(one, order[0]) for one in order[1:]} <= set(woken)
    assert order[0] in handed_on_by
