"""Group commit among threads after a signal or a fork: no thread waits forever, and no lock stays held."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from onceward.protocol.requests import Answer, AnyRequest
from onceward.runtime import thread_batcher
from onceward.runtime.thread_batcher import Follower, ThreadBatcher
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.batcher_calls import ThreadSend, answer_to, request
from tests.unit.thread_batcher_calls import ask, once_queued, start, under_way


class Interrupted(BaseException):
    """What a signal handler raises."""


class TimeLimit(Exception):
    """What the signal handler of a job queue raises."""


@contextmanager
def on_signal(action: Callable[[], Any]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda *_: action())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupt_main() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGUSR1)


def interrupt() -> None:
    raise Interrupted


def is_free(batcher: ThreadBatcher) -> bool:
    """Return whether another thread can send a request: no lock is held, and no leader is left."""
    one = request("is it free?")
    return bool(in_thread(ask, batcher, one).result(TOO_LONG) == answer_to(one)) and not batcher.is_sending()


@pytest.mark.fault("F27")
@pytest.mark.parametrize("raised", [Interrupted, TimeLimit])
def test_a_signal_that_interrupts_the_leader_is_raised_in_the_leader_only(raised: type[BaseException]) -> None:
    """The followers of its batch send their requests alone."""
    send = ThreadSend(1)

    async def interrupted_once(requests: Any, timeout: float) -> list[Answer]:
        answers = await send(requests, timeout)
        if len(requests) > 1:
            raise raised
        return answers

    batcher = ThreadBatcher(interrupted_once)
    first = in_thread(ask, batcher, request("first"))
    send.reached()
    others = start(batcher, *(request(word) for word in "abcd"))
    send.go()
    first.result(TOO_LONG)
    with pytest.raises(raised):
        others[0].result(TOO_LONG)
    assert [one.result(TOO_LONG) for one in others[1:]] == [answer_to(request(word)) for word in "bcd"]
    assert is_free(batcher)


@pytest.mark.fault("F27")
def test_the_request_of_an_interrupted_follower_is_not_sent_and_others_are_not_affected() -> None:
    with under_way() as (batcher, send), on_signal(interrupt):
        others = start(batcher, request("a"))
        interrupter = in_thread(once_queued, batcher, 2, interrupt_main)
        with pytest.raises(Interrupted):
            ask(batcher, request("interrupted"))
        interrupter.result(TOO_LONG)
        send.go()
        assert others[0].result(TOO_LONG) == answer_to(request("a"))
    assert send.calls == [["first"], ["a"]]


@pytest.mark.fault("F27")
def test_a_follower_whose_leader_never_woke_it_leads_by_itself() -> None:
    """An interrupted leader may have taken its request from the queue and left."""
    with under_way() as (batcher, send):
        [lost] = start(batcher, request("lost"))
        batcher._waiting.clear()
        send.go()
        assert lost.result(TOO_LONG) == answer_to(request("lost"))


@pytest.mark.fault("F27")
def test_a_signal_handler_inside_of_a_call_sends_alone() -> None:
    answers: list[Answer] = []
    noted = ThreadSend()

    async def send(requests: Any, timeout: float) -> list[Answer]:
        if requests[0].key == "outer":
            signal.raise_signal(signal.SIGUSR1)
        return await noted(requests, timeout)

    batcher = ThreadBatcher(send)
    with on_signal(lambda: answers.append(ask(batcher, request("inner")))):
        assert ask(batcher, request("outer")) == answer_to(request("outer"))
    assert answers == [answer_to(request("inner"))]
    assert noted.calls == [["inner"], ["outer"]]
    assert is_free(batcher)


@pytest.mark.fault("F27")
def test_a_signal_handler_on_top_of_a_call_that_waits_does_not_wait_for_it() -> None:
    """The leader wakes the call below, which cannot lead now: the handler's call sends both."""
    answers: list[Answer] = []

    def claim_more() -> None:
        in_thread(once_queued, batcher, 2, send.go)
        answers.append(ask(batcher, request("inner")))

    with under_way() as (batcher, send), on_signal(claim_more):
        interrupter = in_thread(once_queued, batcher, 1, interrupt_main)
        assert ask(batcher, request("outer")) == answer_to(request("outer"))
        interrupter.result(TOO_LONG)
    assert answers == [answer_to(request("inner"))]
    assert [sorted(call) for call in send.calls] == [["first"], ["inner", "outer"]]


@pytest.mark.fault("F27")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
def test_signals_at_random_moments_leave_no_thread_waiting_and_no_answer_to_another_call() -> None:
    """The main thread is interrupted again and again, while it leads, follows, and passes the lead on."""

    async def send(requests: Sequence[AnyRequest], _timeout: float) -> list[Answer]:
        time.sleep(1e-4)  # noqa: ASYNC251 (there is no event loop)
        return [answer_to(one) for one in requests]

    batcher = ThreadBatcher(send)
    stopping = threading.Event()

    def worker(name: int) -> int:
        turn = 0
        while not stopping.is_set():
            word = f"{name}/{turn}"
            assert ask(batcher, request(word)) == answer_to(request(word))
            turn += 1
        return turn

    workers = [in_thread(worker, number) for number in range(4)]
    before = signal.signal(signal.SIGALRM, lambda *_: interrupt())
    interrupts = answered = turn = 0
    try:
        while interrupts < 300 or answered < 100:
            turn += 1
            word = f"main/{turn}"
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
                    assert ask(batcher, request(word)) == answer_to(request(word))
                    answered += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interrupts += 1
    finally:
        signal.signal(signal.SIGALRM, before)
        stopping.set()
    assert all(one.result(TOO_LONG) for one in workers)
    assert is_free(batcher)
    assert ask(batcher, request("last")) == answer_to(request("last"))
    assert batcher.waiting() == 0


def test_the_leader_wakes_the_first_follower_that_still_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_batcher, "CHECK_INTERVAL", 10 * TOO_LONG)  # nobody wakes by itself
    with under_way() as (batcher, send):
        gone = Follower(request("gone"), float("inf"))
        batcher._waiting.append(gone)
        gone.leave()
        others = start(batcher, request("a"), request("b"))
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(word)) for word in "ab"]
    assert send.calls == [["first"], ["a", "b"]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.fault("F34")
def test_the_child_of_a_fork_waits_for_no_thread_of_its_parent() -> None:
    with under_way() as (batcher, send):
        others = start(batcher, request("a"), request("b"))
        child = os.fork()
        if child == 0:
            good = ask(batcher, request("child")) == answer_to(request("child")) and send.calls[1:] == [["child"]]
            os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(word)) for word in "ab"]
    assert send.calls == [["first"], ["a", "b"]]
