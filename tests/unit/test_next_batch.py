"""Which requests go together in the next call to the store."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from onceward.protocol.requests import AnyRequest
from onceward.runtime.next_batch import MAX_BATCH, MAX_BATCH_BYTES, OVERHEAD, next_batch
from onceward.runtime.thread_batcher import Follower
from tests.unit.batcher_calls import large, request


def waiting(one: AnyRequest, patience: float = 60) -> Follower:
    return Follower(one, time.monotonic() + patience)


def waiting_for(*requests: AnyRequest) -> list[Follower]:
    return [waiting(one) for one in requests]


def all_batches(ones: list[Follower]) -> list[list[Follower]]:
    batches = []
    while ones:
        batch, ones = next_batch(ones)
        batches.append(batch)
    return batches


def test_first_come_first_served() -> None:
    ones = waiting_for(*(request(word) for word in "abc"))
    assert next_batch(ones) == (ones, [])
    assert next_batch([]) == ([], [])


def test_a_batch_ends_at_256_requests() -> None:
    ones = waiting_for(*(request(number) for number in range(600)))
    assert MAX_BATCH == 256
    assert all_batches(ones) == [ones[:256], ones[256:512], ones[512:]]
    assert next_batch(ones, 2) == (ones[:2], ones[2:])


def test_a_batch_ends_at_a_megabyte_and_what_is_larger_goes_alone() -> None:
    third = MAX_BATCH_BYTES // 3 - OVERHEAD
    ones = waiting_for(*(large(n, third) for n in range(5)), large("huge", 3 * MAX_BATCH_BYTES), large("small", 1))
    assert all_batches(ones) == [ones[:3], ones[3:5], ones[5:6], ones[6:]]
    assert MAX_BATCH_BYTES == 1 << 20


def test_the_second_request_for_a_key_goes_later_and_in_its_order() -> None:
    words = ["a", "b", "a", "c", "a", "b"]
    ones = waiting_for(*(request(word, b"%d" % number) for number, word in enumerate(words)))
    assert [[ones.index(one) for one in batch] for batch in all_batches(ones)] == [[0, 1, 3], [2, 5], [4]]


def test_requests_for_keys_in_another_call_wait() -> None:
    ones = waiting_for(*(request(word) for word in "abc"))
    assert next_batch(ones, in_flight_ids=[ones[1].request.id]) == ([ones[0], ones[2]], [ones[1]])


def test_a_request_of_a_failed_batch_goes_alone() -> None:
    ones = waiting_for(*(request(word) for word in "abc"))
    ones[0].alone = ones[2].alone = True
    assert all_batches(ones) == [[one] for one in ones]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0, 300_000, 700_000, 2_000_000])), max_size=40))
def test_everything_goes_once_each_key_in_its_order_and_no_batch_is_too_large(items: list[tuple[int, int]]) -> None:
    ones = waiting_for(*(large(word, size) for word, size in items))
    gone: list[Follower] = []
    for batch in all_batches(ones):
        ids = [one.request.id for one in batch]
        size = sum(OVERHEAD + len(getattr(one.request, "result", b"")) for one in batch)
        assert len(set(ids)) == len(ids)
        assert len(batch) == 1 or size <= MAX_BATCH_BYTES
        gone += batch
    assert sorted(map(id, gone)) == sorted(map(id, ones))
    for id_ in {one.request.id for one in ones}:
        assert [one for one in gone if one.request.id == id_] == [one for one in ones if one.request.id == id_]


def test_requests_of_callers_that_left_are_not_sent() -> None:
    ones = waiting_for(*(request(word) for word in "abcd"))
    ones[0].leave()
    ones[2].leave()
    assert next_batch(ones) == ([ones[1], ones[3]], [])


def test_an_expired_request_is_not_sent_and_does_not_shorten_the_timeout_of_others() -> None:
    late, other = waiting(request("a"), -1), waiting(request("b"))
    assert next_batch([late, other]) == ([other], [])
    assert late.has_left
