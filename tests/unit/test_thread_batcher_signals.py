"""Group commit among threads after a signal, a lost leadership or a fork: no thread waits forever."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from onceward.protocol.requests import Answer
from onceward.runtime import thread_batcher
from onceward.runtime.thread_batcher import ThreadBatcher, Waiter
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.batcher_calls import ThreadSend, answer_to, request, until
from tests.unit.thread_batcher_calls import ask, once_queued, queued, start, under_way


class Interrupted(BaseException):
    """What a signal handler raises."""


class TimeLimit(Exception):
    """What the signal handler of a job queue raises."""


@contextmanager
def on_signal(action: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda *_: action())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupt_main() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGUSR1)


@pytest.mark.fault("F27")
@pytest.mark.parametrize("raised", [Interrupted, TimeLimit])
def test_a_signal_that_interrupts_the_leader_is_raised_in_the_leader_only(raised: type[BaseException]) -> None:
    """It is raised once, where it arrived; the others ask again by themselves."""
    send = ThreadSend(1)
    struck: list[int] = []

    async def struck_once(requests: Any, timeout: float) -> list[Answer]:
        answers = await send(requests, timeout)
        if len(requests) > 1:
            struck.append(threading.get_ident())
            raise raised
        return answers

    batcher = ThreadBatcher(struck_once)
    first = in_thread(ask, batcher, request("first"))
    send.reached()
    others = start(batcher, *(request(word) for word in "abcd"))
    send.go()
    first.result(TOO_LONG)
    with pytest.raises(raised):
        others[0].result(TOO_LONG)
    assert [one.result(TOO_LONG) for one in others[1:]] == [answer_to(request(word)) for word in "bcd"]
    assert len(struck) == 1


class Striking(deque[Waiter]):
    """A signal arrives as the n-th waiter is taken from the queue, and that waiter is lost."""

    strikes_in = 0

    def popleft(self) -> Waiter:
        self.strikes_in -= 1
        one = super().popleft() if self else None
        if one is None or not self.strikes_in:
            if self.strikes_in:
                raise IndexError
            raise Interrupted
        return one


@pytest.mark.fault("F27")
@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_a_signal_that_strikes_while_the_waiting_are_collected_keeps_none_of_them_waiting(place: int) -> None:
    with under_way() as (batcher, send):
        batcher._queue._waiting = striking = Striking()
        leader, *others = start(batcher, request("leads"), request("a"), request("b"))
        striking.strikes_in = place
        send.go()
        with pytest.raises(Interrupted):
            leader.result(TOO_LONG)
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request("a")), answer_to(request("b"))]


def test_the_request_of_an_interrupted_waiting_thread_is_not_sent_and_others_are_not_affected() -> None:
    with under_way() as (batcher, send), on_signal(strike):
        others = start(batcher, request("a"))
        striker = in_thread(once_queued, batcher, 2, interrupt_main)
        with pytest.raises(Interrupted):
            ask(batcher, request("struck"))
        striker.result(TOO_LONG)
        send.go()
        assert others[0].result(TOO_LONG) == answer_to(request("a"))
    assert send.calls == [["first"], ["a"]]


@pytest.mark.fault("F27")
def test_an_interrupted_thread_whose_request_is_in_flight_leaves_when_its_answer_is_there() -> None:
    """Not before: its cleanup looks for a grant, and must not look too early."""
    left: list[bool] = []

    def strike_and_let_go() -> None:
        until(lambda: queued(batcher) == 2)
        send.go(0)
        send.reached()  # the leader is `a`, and the main thread's request is with it
        interrupt_main()
        until(lambda: struck == [True])
        left.append(finished.is_set())
        send.go(1)

    struck: list[bool] = []
    finished = threading.Event()

    def note_and_strike() -> None:
        struck.append(True)
        raise Interrupted

    with under_way(2) as (batcher, send), on_signal(note_and_strike):
        others = start(batcher, request("a"))
        striker = in_thread(strike_and_let_go)
        with pytest.raises(Interrupted):
            ask(batcher, request("struck"))
        assert len(send.calls) == 2, "the batch has returned"
        assert send._gates[1].is_set()
        finished.set()
        striker.result(TOO_LONG)
        assert others[0].result(TOO_LONG) == answer_to(request("a"))
    assert left == [False]
    assert send.calls == [["first"], ["a", "struck"]]


def strike() -> None:
    raise Interrupted


@pytest.mark.fault("F27")
def test_a_signal_handler_inside_of_a_call_sends_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_batcher, "FIRST_WAIT", 60)  # a thread that sleeps here does not wake in time
    answers: list[Answer] = []
    batcher: ThreadBatcher
    noted = ThreadSend()

    async def send(requests: Any, timeout: float) -> list[Answer]:
        if requests[0].key == "outer":
            signal.raise_signal(signal.SIGUSR1)
        return await noted(requests, timeout)

    batcher = ThreadBatcher(send)
    with on_signal(lambda: answers.append(ask(batcher, request("inner"), 5))):
        assert ask(batcher, request("outer")) == answer_to(request("outer"))
    assert answers == [answer_to(request("inner"))]
    assert noted.calls == [["inner"], ["outer"]]
    assert not batcher._leader_lock.locked()


@pytest.mark.fault("F27")
def test_a_signal_handler_on_top_of_a_call_that_waits_does_not_wait_for_it() -> None:
    """Leadership passes to the call below, which cannot take it: the handler sends both."""
    answers: list[Answer] = []

    def claim_more() -> None:
        in_thread(once_queued, batcher, 2, send.go)
        answers.append(ask(batcher, request("inner")))

    with under_way() as (batcher, send), on_signal(claim_more):
        striker = in_thread(once_queued, batcher, 1, interrupt_main)
        assert ask(batcher, request("outer")) == answer_to(request("outer"))
        striker.result(TOO_LONG)
    assert answers == [answer_to(request("inner"))]
    assert send.calls == [["first"], ["outer", "inner"]]


def lost_leadership(batcher: ThreadBatcher) -> None:
    """Leave the batcher as a signal does that raises between taking the lock and recording the leader."""
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    batcher._leader_lock.acquire()
    batcher._leader = gone.ident or 0


@pytest.mark.fault("F27")
def test_a_lost_leadership_is_taken_up_again() -> None:
    send = ThreadSend()
    batcher = ThreadBatcher(send)
    lost_leadership(batcher)
    assert ask(batcher, request("a")) == answer_to(request("a"))
    assert not batcher._leader_lock.locked()


def test_the_leader_does_not_get_the_errors_of_others() -> None:
    """It took over a lost leadership and found another request for its key before its own."""
    send = ThreadSend()
    batcher = ThreadBatcher(send)
    lost_leadership(batcher)
    before = Waiter(request("a", b"bad"), float("inf"), 0)
    batcher._queue.add(before)
    send.fails = lambda requests: requests[0].nonce == b"bad"  # type: ignore[union-attr]
    assert ask(batcher, request("a", b"good")) == answer_to(request("a"))
    assert before.send_alone
    assert send.calls == [["a"], ["a"]]


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
