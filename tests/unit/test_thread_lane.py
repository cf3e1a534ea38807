"""Group commit among threads (PROTOCOL 11): gates in the store decide who waits for whom."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from onceward.bridge import run
from onceward.errors import StoreUnavailable
from onceward.model.record import Answer
from onceward.ports import AnyRequest
from onceward.worlds import thread_lane
from onceward.worlds.thread_lane import Sleeper, ThreadLane
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.lane_calls import ThreadSend, answer_to, large, request, until

PATIENCE = 30.0


class Interrupted(BaseException):
    """What a signal handler raises."""


class TimeLimit(Exception):
    """What the signal handler of a job queue raises."""


def ask(lane: ThreadLane, one: AnyRequest, timeout: float = PATIENCE) -> Answer:
    async def call() -> Answer:
        [answer] = await lane(one, timeout)
        return answer

    return run(call())


def queued(lane: ThreadLane) -> int:
    return len(lane._queue._waiting)


def once_queued(lane: ThreadLane, many: int, then: Callable[[], None]) -> None:
    until(lambda: queued(lane) == many)
    then()


def start(lane: ThreadLane, *requests: AnyRequest, timeout: float = PATIENCE) -> list[Future[Any]]:
    """One thread each, queued in this order behind a call that is under way."""
    started: list[Future[Any]] = []
    for one in requests:
        before = queued(lane)
        started.append(in_thread(ask, lane, one, timeout))
        until(lambda: queued(lane) > before)  # noqa: B023 (called at once)
    return started


@contextmanager
def under_way(holds: int = 1) -> Iterator[tuple[ThreadLane, ThreadSend]]:
    """A lane whose first call is inside of the store."""
    send = ThreadSend(holds)
    lane = ThreadLane(send)
    first = in_thread(ask, lane, request("first"))
    send.reached()
    yield lane, send
    for number in range(holds):
        send.go(number)
    assert first.result(TOO_LONG) == answer_to(request("first"))
    until(lambda: not lane._baton.locked())


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


def test_a_lone_call_sends_itself_on_its_own_thread() -> None:
    send = ThreadSend()
    lane = ThreadLane(send)
    threads = set(threading.enumerate())
    for word in "abc":
        assert ask(lane, request(word)) == answer_to(request(word))
    assert send.calls == [["a"], ["b"], ["c"]]
    assert set(send.senders) == {threading.get_ident()}
    assert set(threading.enumerate()) == threads


def test_what_arrives_while_a_call_is_under_way_goes_together_in_the_next() -> None:
    words = "abcdefghij"
    with under_way() as (lane, send):
        others = start(lane, *(request(word) for word in words))
        assert send.calls == [["first"]]
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(word)) for word in words]
    assert send.calls == [["first"], list(words)]


def test_at_most_256_go_together() -> None:
    with under_way() as (lane, send):
        others = start(lane, *(request(number) for number in range(300)))
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(number)) for number in range(300)]
    assert send.sizes() == [1, 256, 44]


def test_at_most_a_megabyte_goes_together() -> None:
    with under_way() as (lane, send):
        others = start(lane, *(large(number, 400_000) for number in range(5)))
        send.go()
        for one in others:
            one.result(TOO_LONG)
    assert send.sizes() == [1, 2, 2, 1]


def test_two_requests_for_one_key_go_one_after_the_other() -> None:
    with under_way() as (lane, send):
        others = start(lane, *(request(word, nonce) for word, nonce in [("a", b"1"), ("b", b"2"), ("a", b"3")]))
        send.go()
        for one in others:
            one.result(TOO_LONG)
    assert send.calls == [["first"], ["a", "b"], ["a"]]
    assert [getattr(one, "nonce", b"") for call in send.requests[1:] for one in call] == [b"1", b"2", b"3"]


def test_one_that_fails_fails_alone_and_the_others_are_repeated_with_their_nonce() -> None:
    words = ["a", "bad", "c", "d"]
    with under_way() as (lane, send):
        send.fails = lambda requests: any(getattr(one, "key", "") == "bad" for one in requests)
        asked = [request(word, word.encode()) for word in words]
        others = start(lane, *asked)
        send.go()
        for word, one in zip(words, others, strict=True):
            if word == "bad":
                with pytest.raises(StoreUnavailable, match="bad"):
                    one.result(TOO_LONG)
            else:
                assert one.result(TOO_LONG) == answer_to(request(word))
    assert send.calls[:2] == [["first"], words]
    assert sorted(send.calls[2:]) == [[word] for word in sorted(words)]
    alone = [one for call in send.requests[2:] for one in call]
    assert all(any(one is same for same in asked) for one in alone), "the very same request, so the same nonce"


def test_whoever_finds_the_lane_free_gets_its_own_error() -> None:
    send = ThreadSend()
    send.fails = lambda _: True
    lane = ThreadLane(send)
    with pytest.raises(StoreUnavailable):
        ask(lane, request("a"))
    assert send.sizes() == [1]
    send.fails = lambda _: False
    assert ask(lane, request("b")) == answer_to(request("b"))


@pytest.mark.fault("F27")
@pytest.mark.parametrize("raised", [Interrupted, TimeLimit])
def test_a_signal_that_strikes_whoever_sends_for_others_is_its_own_affair(raised: type[BaseException]) -> None:
    """It is raised where it struck, once; the others ask again by themselves."""
    send = ThreadSend(1)
    struck: list[int] = []

    async def struck_once(requests: Any, timeout: float) -> list[Answer]:
        answers = await send(requests, timeout)
        if len(requests) > 1:
            struck.append(threading.get_ident())
            raise raised
        return answers

    lane = ThreadLane(struck_once)
    first = in_thread(ask, lane, request("first"))
    send.reached()
    others = start(lane, *(request(word) for word in "abcd"))
    send.go()
    first.result(TOO_LONG)
    with pytest.raises(raised):
        others[0].result(TOO_LONG)
    assert [one.result(TOO_LONG) for one in others[1:]] == [answer_to(request(word)) for word in "bcd"]
    assert len(struck) == 1


@pytest.mark.fault("F27")
class Striking(deque[Sleeper]):
    """A signal comes as the n-th of the waiting is handed out, and nobody gets that one."""

    strikes_in = 0

    def popleft(self) -> Sleeper:
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
    with under_way() as (lane, send):
        lane._queue._waiting = striking = Striking()
        leader, *others = start(lane, request("leads"), request("a"), request("b"))
        striking.strikes_in = place
        send.go()
        with pytest.raises(Interrupted):
            leader.result(TOO_LONG)
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request("a")), answer_to(request("b"))]


def test_an_interrupted_thread_that_waits_is_not_sent_and_disturbs_nobody() -> None:
    with under_way() as (lane, send), on_signal(strike):
        others = start(lane, request("a"))
        striker = in_thread(once_queued, lane, 2, interrupt_main)
        with pytest.raises(Interrupted):
            ask(lane, request("struck"))
        striker.result(TOO_LONG)
        send.go()
        assert others[0].result(TOO_LONG) == answer_to(request("a"))
    assert send.calls == [["first"], ["a"]]


@pytest.mark.fault("F27")
def test_an_interrupted_thread_whose_request_is_under_way_leaves_when_its_answer_is_there() -> None:
    """Not before: whoever cleans up after it looks for a grant, and must not look too early."""
    left: list[bool] = []

    def strike_and_let_go() -> None:
        until(lambda: queued(lane) == 2)
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

    with under_way(2) as (lane, send), on_signal(note_and_strike):
        others = start(lane, request("a"))
        striker = in_thread(strike_and_let_go)
        with pytest.raises(Interrupted):
            ask(lane, request("struck"))
        assert len(send.calls) == 2, "the flight has landed"
        assert send._gates[1].is_set()
        finished.set()
        striker.result(TOO_LONG)
        assert others[0].result(TOO_LONG) == answer_to(request("a"))
    assert left == [False]
    assert send.calls == [["first"], ["a", "struck"]]


def strike() -> None:
    raise Interrupted


def test_each_call_has_a_deadline_of_its_own_while_it_waits_for_its_turn() -> None:
    with under_way() as (lane, send):
        others = start(lane, request("patient"))
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            ask(lane, request("hurried"), timeout=0.01)
        assert not others[0].done(), "the flight goes on"
        send.go()
        assert others[0].result(TOO_LONG) == answer_to(request("patient"))
    assert send.calls == [["first"], ["patient"]]


def test_each_call_has_a_deadline_of_its_own_while_others_send_it() -> None:
    with under_way(2) as (lane, send):
        patient = start(lane, request("patient"))
        hurried = start(lane, request("hurried"), timeout=PATIENCE / 2)
        sleeper = lane._queue._waiting[1]
        send.go(0)
        send.reached()  # the second call has both aboard
        sleeper.deadline = 0.0
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            hurried[0].result(TOO_LONG)
        assert not patient[0].done(), "the flight goes on"
        send.go(1)
        assert patient[0].result(TOO_LONG) == answer_to(request("patient"))
    assert send.calls[1] == ["patient", "hurried"]
    assert send.timeouts[1] <= PATIENCE / 2, "a call is as short as the most hurried of its requests wants it"


def test_nobody_starves_and_the_lead_changes_hands() -> None:
    """Whoever sends has a request of its own in that call: nobody works for the others for ever."""
    send = ThreadSend()
    lane = ThreadLane(send)
    threads, rounds = 100, 20
    owners: dict[str, int] = {}
    line = threading.Barrier(threads)

    def worker(number: int) -> None:
        line.wait(TOO_LONG)
        for turn in range(rounds):
            word = f"{number}/{turn}"
            owners[word] = threading.get_ident()
            assert ask(lane, request(word)) == answer_to(request(word))

    for one in [in_thread(worker, number) for number in range(threads)]:
        one.result(TOO_LONG)
    assert sorted(word for call in send.calls for word in call) == sorted(owners)
    assert all(sender in {owners[word] for word in call} for sender, call in zip(send.senders, send.calls, strict=True))
    assert not lane._baton.locked()
    assert queued(lane) == 0


@pytest.mark.fault("F27")
def test_a_signal_handler_inside_of_a_call_sends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_lane, "NAP", 60)  # whoever sleeps here does not wake in time
    answers: list[Answer] = []
    lane: ThreadLane
    noted = ThreadSend()

    async def send(requests: Any, timeout: float) -> list[Answer]:
        if requests[0].key == "outer":
            signal.raise_signal(signal.SIGUSR1)
        return await noted(requests, timeout)

    lane = ThreadLane(send)
    with on_signal(lambda: answers.append(ask(lane, request("inner"), 5))):
        assert ask(lane, request("outer")) == answer_to(request("outer"))
    assert answers == [answer_to(request("inner"))]
    assert noted.calls == [["inner"], ["outer"]]
    assert not lane._baton.locked()


@pytest.mark.fault("F27")
def test_a_signal_handler_on_top_of_a_call_that_waits_does_not_wait_for_it() -> None:
    """The turn comes to the call below, which cannot take it: the handler sends both."""
    answers: list[Answer] = []

    def claim_more() -> None:
        in_thread(once_queued, lane, 2, send.go)
        answers.append(ask(lane, request("inner")))

    with under_way() as (lane, send), on_signal(claim_more):
        striker = in_thread(once_queued, lane, 1, interrupt_main)
        assert ask(lane, request("outer")) == answer_to(request("outer"))
        striker.result(TOO_LONG)
    assert answers == [answer_to(request("inner"))]
    assert send.calls == [["first"], ["outer", "inner"]]


def lost_baton(lane: ThreadLane) -> None:
    """As a signal leaves it that raises between the lock and whatever would note it."""
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    lane._baton.acquire()
    lane._holder = gone.ident or 0


@pytest.mark.fault("F27")
def test_a_baton_that_was_lost_is_taken_up_again() -> None:
    send = ThreadSend()
    lane = ThreadLane(send)
    lost_baton(lane)
    assert ask(lane, request("a")) == answer_to(request("a"))
    assert not lane._baton.locked()


def test_whoever_sends_for_others_is_not_told_their_error() -> None:
    """It took up a lost baton and found another request for its key before its own."""
    send = ThreadSend()
    lane = ThreadLane(send)
    lost_baton(lane)
    before = Sleeper(request("a", b"bad"), float("inf"), 0)
    lane._queue.add(before)
    send.fails = lambda requests: requests[0].nonce == b"bad"  # type: ignore[union-attr]
    assert ask(lane, request("a", b"good")) == answer_to(request("a"))
    assert before.alone
    assert send.calls == [["a"], ["a"]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.fault("F34")
def test_the_child_of_a_fork_waits_for_no_thread_of_its_parent() -> None:
    with under_way() as (lane, send):
        others = start(lane, request("a"), request("b"))
        child = os.fork()
        if child == 0:
            good = ask(lane, request("child")) == answer_to(request("child")) and send.calls[1:] == [["child"]]
            os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(word)) for word in "ab"]
    assert send.calls == [["first"], ["a", "b"]]


def test_a_store_that_answers_too_little_is_asked_one_by_one() -> None:
    with under_way() as (lane, send):
        whole = send.answers
        send.answers = lambda requests: whole(requests)[:1]  # type: ignore[method-assign]
        others = start(lane, request("a"), request("b"))
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(word)) for word in "ab"]
    assert send.sizes()[:2] == [1, 2]


# ── who wakes whom ──


class Watched(ThreadLane):
    """Notes who hands the baton on."""

    def reset(self) -> None:
        super().reset()
        self.handed_on_by: list[int] = []

    def _hand_on(self) -> None:
        self.handed_on_by.append(threading.get_ident())
        super()._hand_on()


def told_together(number: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """So many wait for one call: they in their order, who was woken by whom, and who handed the baton on since."""
    woken: list[tuple[int, int]] = []
    wake = Sleeper.wake

    def noted(one: Sleeper) -> None:
        woken.append((one.ident, threading.get_ident()))
        wake(one)

    send = ThreadSend(2)
    lane = Watched(send)
    first = in_thread(ask, lane, request("first"))
    send.reached()
    others = start(lane, *(request(word) for word in range(number)))
    order = [one.ident for one in lane._queue]
    send.go(0)
    send.reached()
    monkeypatch.setattr(Sleeper, "wake", noted)
    lane.handed_on_by.clear()
    send.go(1)
    for one in (first, *others):
        one.result(TOO_LONG)
    until(lambda: not lane._baton.locked())
    return order, woken, lane.handed_on_by


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_lane, "LONGEST_ROUND", TOO_LONG)
    monkeypatch.setattr(thread_lane, "NAP", TOO_LONG)


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
    monkeypatch.setattr(thread_lane, "LONGEST_ROUND", -1.0)
    order, woken, handed_on_by = told_together(5, monkeypatch)
    assert {(one, order[0]) for one in order[1:]} <= set(woken)
    assert order[0] in handed_on_by
