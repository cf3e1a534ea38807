"""The memory store stays as small as what it remembers."""

from __future__ import annotations

import pytest

from onceward import MemoryStore, Once


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
