"""Group commit among threads (PROTOCOL 11): gates in the store decide which call waits."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Answer, AnyRequest
from onceward.runtime import thread_batcher
from onceward.runtime.thread_batcher import Follower, ThreadBatcher
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.batcher_calls import ThreadSend, answer_to, large, request, until
from tests.unit.thread_batcher_calls import PATIENCE, ask, start, under_way


def followers_of(batcher: ThreadBatcher) -> Sequence[Follower]:
    """Return the threads that wait in the queue."""
    return batcher._waiting


def test_a_single_call_is_sent_on_its_own_thread() -> None:
    send = ThreadSend()
    batcher = ThreadBatcher(send)
    threads = set(threading.enumerate())
    for word in "abc":
        assert ask(batcher, request(word)) == answer_to(request(word))
    assert send.calls == [["a"], ["b"], ["c"]]
    assert set(send.senders) == {threading.get_ident()}
    assert set(threading.enumerate()) == threads


def test_what_arrives_while_a_call_is_under_way_goes_together_in_the_next() -> None:
    words = "abcdefghij"
    with under_way() as (batcher, send):
        others = start(batcher, *(request(word) for word in words))
        assert send.calls == [["first"]]
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(word)) for word in words]
    assert send.calls == [["first"], list(words)]


def test_at_most_256_go_together() -> None:
    with under_way() as (batcher, send):
        others = start(batcher, *(request(number) for number in range(300)))
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(number)) for number in range(300)]
    assert send.sizes() == [1, 256, 44]


def test_at_most_a_megabyte_goes_together() -> None:
    with under_way() as (batcher, send):
        others = start(batcher, *(large(number, 400_000) for number in range(5)))
        send.go()
        for one in others:
            one.result(TOO_LONG)
    assert send.sizes() == [1, 2, 2, 1]


def test_two_requests_for_one_key_go_one_after_the_other() -> None:
    with under_way() as (batcher, send):
        others = start(batcher, *(request(word, nonce) for word, nonce in [("a", b"1"), ("b", b"2"), ("a", b"3")]))
        send.go()
        for one in others:
            one.result(TOO_LONG)
    assert send.calls == [["first"], ["a", "b"], ["a"]]
    assert [getattr(one, "nonce", b"") for call in send.requests[1:] for one in call] == [b"1", b"2", b"3"]


def test_one_that_fails_fails_alone_and_the_others_are_repeated_with_their_nonce() -> None:
    words = ["a", "bad", "c", "d"]
    with under_way() as (batcher, send):
        send.fails = lambda requests: any(getattr(one, "key", "") == "bad" for one in requests)
        asked = [request(word, word.encode()) for word in words]
        others = start(batcher, *asked)
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


def test_a_caller_that_finds_the_batcher_idle_gets_its_own_error() -> None:
    send = ThreadSend()
    send.fails = lambda _: True
    batcher = ThreadBatcher(send)
    with pytest.raises(StoreUnavailable):
        ask(batcher, request("a"))
    assert send.sizes() == [1]
    send.fails = lambda _: False
    assert ask(batcher, request("b")) == answer_to(request("b"))


def test_each_call_has_a_deadline_of_its_own_while_it_waits_for_its_turn() -> None:
    with under_way() as (batcher, send):
        others = start(batcher, request("patient"))
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            ask(batcher, request("hurried"), timeout=0.01)
        assert not others[0].done(), "the batch is still in flight"
        send.go()
        assert others[0].result(TOO_LONG) == answer_to(request("patient"))
    assert send.calls == [["first"], ["patient"]]


def test_each_call_has_a_deadline_of_its_own_while_others_send_it() -> None:
    with under_way(2) as (batcher, send):
        patient = start(batcher, request("patient"))
        hurried = start(batcher, request("hurried"), timeout=PATIENCE / 2)
        sleeper = followers_of(batcher)[1]
        send.go(0)
        send.reached()  # the second call has both requests
        sleeper.deadline = 0.0
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            hurried[0].result(TOO_LONG)
        assert not patient[0].done(), "the batch is still in flight"
        send.go(1)
        assert patient[0].result(TOO_LONG) == answer_to(request("patient"))
    assert send.calls[1] == ["patient", "hurried"]
    assert send.timeouts[1] <= PATIENCE / 2, "the shortest timeout in the batch limits the call"


def test_no_caller_starves_and_the_leader_changes() -> None:
    """The leader has a request of its own in each call that it sends: no thread sends for the others forever."""
    send = ThreadSend()
    batcher = ThreadBatcher(send)
    threads, rounds = 100, 20
    owners: dict[str, int] = {}
    line = threading.Barrier(threads)

    def worker(number: int) -> None:
        line.wait(TOO_LONG)
        for turn in range(rounds):
            word = f"{number}/{turn}"
            owners[word] = threading.get_ident()
            assert ask(batcher, request(word)) == answer_to(request(word))

    for one in [in_thread(worker, number) for number in range(threads)]:
        one.result(TOO_LONG)
    assert sorted(word for call in send.calls for word in call) == sorted(owners)
    assert all(sender in {owners[word] for word in call} for sender, call in zip(send.senders, send.calls, strict=True))
    assert not batcher.is_sending()
    assert batcher.waiting() == 0


@pytest.fixture
def no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent followers from waking by themselves: another thread must wake each of them."""
    monkeypatch.setattr(thread_batcher, "CHECK_INTERVAL", 10 * TOO_LONG)


@pytest.mark.usefixtures("no_checks")
@pytest.mark.parametrize("max_waking", [10 * TOO_LONG, 0.0], ids=["one after the other", "all at once"])
def test_every_follower_is_woken(monkeypatch: pytest.MonkeyPatch, max_waking: float) -> None:
    monkeypatch.setattr(thread_batcher, "MAX_WAKING", max_waking)
    with under_way() as (batcher, send):
        others = start(batcher, *(request(number) for number in range(20)))
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(number)) for number in range(20)]
    assert send.sizes() == [1, 20]


@pytest.mark.usefixtures("no_checks")
def test_the_next_call_starts_when_all_followers_of_the_last_one_woke(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their next requests are sent together with those that arrived before."""
    monkeypatch.setattr(thread_batcher, "MAX_WAKING", 10 * TOO_LONG)

    def twice(word: str) -> None:
        for turn in range(2):
            assert ask(batcher, request(f"{word}{turn}")) == answer_to(request(f"{word}{turn}"))

    with under_way() as (batcher, send):
        others = []
        for count, word in enumerate("abcdefgh", 1):
            others.append(in_thread(twice, word))
            until(lambda: batcher.waiting() == count)  # noqa: B023 (called immediately)
        send.go()
        for one in others:
            one.result(TOO_LONG)
    assert send.sizes()[:2] == [1, 8]
    assert len(send.sizes()) <= 5, "a few may be late; without waiting for them, each would be sent alone"


@pytest.mark.usefixtures("no_checks")
def test_a_follower_that_left_does_not_keep_the_others_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_batcher, "MAX_WAKING", 10 * TOO_LONG)
    with under_way(2) as (batcher, send):
        others = start(batcher, request("a"), request("gone"), request("b"), request("c"))
        gone = followers_of(batcher)[1]
        send.go(0)
        send.reached()
        gone.deadline = 0.0
        gone.wake()
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            others.pop(1).result(TOO_LONG)
        send.go(1)
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(word)) for word in "abc"]


@pytest.mark.usefixtures("no_checks")
def test_a_leader_without_a_request_of_its_own_wakes_the_others() -> None:
    """Its deadline passed before it could send."""
    with under_way() as (batcher, send):
        others = start(batcher, request("late"), request("a"), request("b"))
        followers_of(batcher)[0].deadline = 0.0
        send.go()
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            others[0].result(TOO_LONG)
        assert [one.result(TOO_LONG) for one in others[1:]] == [answer_to(request(word)) for word in "ab"]
    assert send.calls == [["first"], ["a", "b"]]


@pytest.mark.usefixtures("no_checks")
def test_requests_behind_a_failed_call_do_not_wait_for_its_repetitions() -> None:
    may_repeat = threading.Event()
    with under_way(2) as (batcher, send):
        answers = send.answers

        def slow_alone(requests: Sequence[AnyRequest]) -> list[Answer]:
            if requests[0] in asked and len(requests) == 1:
                assert may_repeat.wait(TOO_LONG)
            return answers(requests)

        asked = [request("a"), request("b")]
        send.answers = slow_alone  # type: ignore[method-assign]
        send.fails = lambda requests: len(requests) > 1
        others = start(batcher, *asked)
        send.go(0)
        send.reached()
        [late] = start(batcher, request("late"))
        send.go(1)
        try:
            assert late.result(TOO_LONG / 2) == answer_to(request("late"))
        finally:
            may_repeat.set()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(one) for one in asked]


def test_a_store_that_answers_too_little_is_asked_one_by_one() -> None:
    with under_way() as (batcher, send):
        whole = send.answers
        send.answers = lambda requests: whole(requests)[:1]  # type: ignore[method-assign]
        others = start(batcher, request("a"), request("b"))
        send.go()
        assert [one.result(TOO_LONG) for one in others] == [answer_to(request(word)) for word in "ab"]
    assert send.sizes()[:2] == [1, 2]
