"""`once.imap`: outcomes as soon as they are known, with progress; closing it releases what has not begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError, Once, RecordState, StoreUnavailable
from onceward.engine.stream import LOOK_AHEAD
from onceward.operations import ItemOutcome
from onceward.testing import FakeClock
from tests.clients import Backend, SyncClient
from tests.unit.other_worker import owned

pytestmark = pytest.mark.finding("N21")


@pytest.fixture
def backend(tmp_path: Path, clock: FakeClock) -> Backend:
    """Memory is enough here: nothing in this file depends on the store."""
    return Backend("memory", tmp_path, clock)


class Stream:
    """The iterator of the sync or async client, used as blocking code."""

    def __init__(self, client: SyncClient, work: Any, items: Any, **settings: Any) -> None:
        self._client = client
        self._found = client.once.imap(client.work(work), items, name="work", key="{item}", **settings)

    def __iter__(self) -> Iterator[ItemOutcome[Any, Any]]:
        return self

    def __next__(self) -> ItemOutcome[Any, Any]:
        if self._client.mode == "blocking":
            return next(self._found)
        try:
            found: ItemOutcome[Any, Any] = self._client.wait(_next(self._found))
        except StopAsyncIteration:
            raise StopIteration from None
        return found

    def close(self) -> None:
        self._client.wait(self._found.close() if self._client.mode == "blocking" else self._found.aclose())


def noted(done: list[int]) -> Any:
    def work(item: int) -> None:
        done.append(item)

    return work


async def _next(found: Any) -> Any:
    return await anext(found)


def test_an_outcome_is_returned_before_the_next_item_runs(client: SyncClient) -> None:
    done: list[int] = []
    seen = []
    for one in Stream(client, noted(done), [1, 2, 3]):
        seen.append((one.item, one.index, one.outcome.kind, one.done, one.total))
        assert done == [1, 2, 3][: one.done]
    assert seen == [(1, 0, "executed", 1, 3), (2, 1, "executed", 2, 3), (3, 2, "executed", 3, 3)]


def test_failures_repeats_and_missing_keys_stop_no_other_item(client: SyncClient) -> None:
    def work(item: Any) -> Any:
        return 1 // item

    found = list(Stream(client, work, iter([1, 0, None, 1, 2])))
    assert {(one.index, one.outcome.kind) for one in found} == {
        (0, "executed"), (1, "failed"), (2, "failed"), (3, "replayed"), (4, "executed")
    }  # fmt: skip
    assert [one.done for one in found] == [1, 2, 3, 4, 5]
    assert {one.total for one in found} == {None}, "the length of an iterator is not known"
    again = list(Stream(client, work, [1, 2]))
    assert [(one.outcome.kind, one.outcome.value) for one in again] == [("replayed", 1), ("replayed", 0)]


def test_items_are_read_as_they_are_needed(client: SyncClient) -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10 * LOOK_AHEAD):
            read.append(number)
            yield number

    stream = Stream(client, noted([]), items())
    next(stream)
    assert len(read) == LOOK_AHEAD
    stream.close()
    assert len(read) == LOOK_AHEAD


def test_closing_it_releases_what_has_not_begun(client: SyncClient) -> None:
    done: list[int] = []
    stream = Stream(client, noted(done), range(5))
    next(stream)
    assert client.read("3", name="work").state is RecordState.PENDING, "claimed ahead"
    stream.close()
    assert done == [0]
    assert [client.read(str(item), name="work") for item in range(1, 5)] == [None] * 4, "free at once, not by a lease"
    assert len(client.events_named("released")) == 4
    assert [one.outcome.kind for one in Stream(client, noted(done), range(5))] == ["replayed"] + ["executed"] * 4
    assert done == [0, 1, 2, 3, 4]


def test_a_key_of_another_worker_comes_last(client: SyncClient) -> None:
    stream = Stream(client, noted([]), [1, 2, 3])
    with owned(client, client.once.key("1", name="work")):
        assert [next(stream).item, next(stream).item] == [2, 3]
    last = next(stream)
    assert (last.item, last.outcome.kind, last.done) == (1, "replayed", 3)


def test_with_limited_attempts_one_key_is_claimed_at_a_time(client: SyncClient) -> None:
    stream = Stream(client, lambda item: None, range(3), max_attempts=2)
    next(stream)
    assert client.read("1", name="work") is None
    stream.close()


def test_an_outage_is_raised_and_nothing_stays_claimed(client: SyncClient) -> None:
    stream = Stream(client, noted([]), range(2))
    with client.store_trouble("claim"), pytest.raises(StoreUnavailable):
        next(stream)
    assert list(stream) == [], "it has ended"


def test_an_error_in_the_declaration_is_raised_by_the_call_itself() -> None:
    with pytest.raises(ConfigurationError, match="nothing"):
        Once("memory://").imap(noted([]), [1], key="{nothing}", name="work")

    async def work(item: int) -> None: ...

    with pytest.raises(ConfigurationError, match="nothing"):
        AsyncOnce("memory://").imap(work, [1], key="{nothing}", name="work")
