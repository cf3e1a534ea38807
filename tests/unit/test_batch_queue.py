"""Which requests go together in the next call to the store."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from onceward.protocol.requests import AnyRequest
from onceward.runtime.batch_queue import MAX_BATCH, MAX_BATCH_BYTES, OVERHEAD, BatchQueue
from onceward.runtime.thread_batcher import Waiter
from tests.unit.batcher_calls import large, request


def waiting(one: AnyRequest, patience: float = 60) -> Waiter:
    return Waiter(one, time.monotonic() + patience, 0)


def queue_of(*requests: AnyRequest) -> tuple[BatchQueue[Waiter], list[Waiter]]:
    queue: BatchQueue[Waiter] = BatchQueue()
    all_of_them = [waiting(one) for one in requests]
    for one in all_of_them:
        queue.add(one)
    return queue, all_of_them


def test_first_come_first_served() -> None:
    queue, ones = queue_of(*(request(word) for word in "abc"))
    assert queue.first() is ones[0]
    assert queue.take() == ones
    assert all(one.taken for one in ones)
    assert queue.first() is None
    assert queue.take() == []


def test_a_batch_ends_at_256_requests() -> None:
    queue, ones = queue_of(*(request(number) for number in range(600)))
    assert MAX_BATCH == 256
    assert [queue.take() for _ in range(4)] == [ones[:256], ones[256:512], ones[512:], []]


def test_a_batch_ends_at_a_megabyte_and_what_is_larger_goes_alone() -> None:
    third = MAX_BATCH_BYTES // 3 - OVERHEAD
    queue, ones = queue_of(*(large(n, third) for n in range(5)), large("huge", 3 * MAX_BATCH_BYTES), large("small", 1))
    assert [queue.take() for _ in range(4)] == [ones[:3], ones[3:5], ones[5:6], ones[6:]]
    assert MAX_BATCH_BYTES == 1 << 20


def test_the_second_request_for_a_key_goes_later_and_in_its_order() -> None:
    words = ["a", "b", "a", "c", "a", "b"]
    queue, ones = queue_of(*(request(word, b"%d" % number) for number, word in enumerate(words)))
    batches = [queue.take() for _ in range(3)]
    assert [[ones.index(one) for one in batch] for batch in batches] == [[0, 1, 3], [2, 5], [4]]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0, 300_000, 700_000, 2_000_000])), max_size=40))
def test_everything_goes_once_each_key_in_its_order_and_no_batch_is_too_large(items: list[tuple[int, int]]) -> None:
    queue, ones = queue_of(*(large(word, size) for word, size in items))
    gone: list[Waiter] = []
    while batch := queue.take():
        ids = [one.request.id for one in batch]
        size = sum(OVERHEAD + len(getattr(one.request, "result", b"")) for one in batch)
        assert len(set(ids)) == len(ids)
        assert len(batch) == 1 or size <= MAX_BATCH_BYTES
        gone += batch
    assert sorted(map(id, gone)) == sorted(map(id, ones))
    for id_ in {one.request.id for one in ones}:
        assert [one for one in gone if one.request.id == id_] == [one for one in ones if one.request.id == id_]


def test_requests_of_callers_that_left_are_not_sent() -> None:
    queue, ones = queue_of(*(request(word) for word in "abcd"))
    ones[0].left = ones[2].left = True
    assert queue.first() is ones[1]
    assert queue.take() == [ones[1], ones[3]]


def test_an_expired_request_is_not_sent_and_does_not_shorten_the_timeout_of_others() -> None:
    queue: BatchQueue[Waiter] = BatchQueue()
    late, other = waiting(request("a"), -1), waiting(request("b"))
    queue.add(late)
    queue.add(other)
    assert queue.take() == [other]
    assert late.left


def test_what_is_put_back_goes_first() -> None:
    queue, ones = queue_of(*(request(word) for word in "abc"))
    taken = queue.take()
    queue.add(later := waiting(request("d")))
    queue.put_back(taken)
    assert not any(one.taken for one in ones)
    assert queue.take() == [*ones, later]


class Interleaved(Waiter):
    """A request whose caller has left: while one thread checks that, another thread takes it and adds nothing."""

    __slots__ = ("queue",)
    queue: BatchQueue[Waiter]

    def __getattribute__(self, name: str) -> object:
        if name == "left":
            queue = object.__getattribute__(self, "queue")
            if queue._waiting and queue._waiting[0] is self:
                queue._waiting.popleft()
            return True
        return object.__getattribute__(self, name)


def test_reading_the_head_never_drops_a_waiting_request() -> None:
    """The previous leader reads the head while the next leader takes it: both see the same one."""
    queue: BatchQueue[Waiter] = BatchQueue()
    head = Interleaved(request("a"), time.monotonic() + 60, 0)
    head.queue = queue
    queue.add(head)
    queue.add(live := waiting(request("b")))
    assert queue.first() is live
    assert queue.take() == [live]
