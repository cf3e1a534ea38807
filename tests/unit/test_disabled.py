"""`onceward.testing.disabled()`: while it is on, work runs as if it were not decorated at all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError, Once, RecordState, current_async_claim, current_claim
from onceward.engine import switch
from onceward.stores import MemoryStore
from onceward.testing import FakeClock, disabled
from tests.clients import Backend, SyncClient


@pytest.fixture
def backend(tmp_path: Path, clock: FakeClock) -> Backend:
    """Memory is enough here: nothing in this file depends on the store."""
    return Backend("memory", tmp_path, clock)


def here(client: SyncClient) -> Any:
    return current_claim() if client.mode == "blocking" else current_async_claim()


def test_every_call_runs_and_nothing_is_stored(client: SyncClient) -> None:
    effects: list[int] = []

    @client(key="k:{x}")
    def work(x: int) -> int:
        effects.append(x)
        return len(effects)

    with disabled():
        assert [work(1), work(1)] == [1, 2]
        outcome = work.outcome(1)
        assert (outcome.kind, outcome.value, outcome.reason) == ("executed", 3, "disabled")
        assert work.read(1) is None
        assert client.run("k", len, [1]) == client.run("k", len, [1]) == 1
    assert client.events == []
    assert [work(1), work(1)] == [4, 4]  # and it is back


def test_exceptions_pass(client: SyncClient) -> None:
    @client
    def work() -> None:
        raise ZeroDivisionError

    with disabled():
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                work()


def test_every_item_of_a_map_runs(client: SyncClient) -> None:
    done: list[int] = []

    def work(item: int) -> None:
        done.append(item)

    with disabled():
        assert [one.reason for one in client.map(work, [1, 1, 2])] == ["disabled"] * 3
    assert done == [1, 1, 2]


def test_a_claim_is_there_to_look_at_but_no_store_knows_it(client: SyncClient) -> None:
    with client.claim("taken"):
        pass
    before = len(client.events)
    with disabled():
        with client.claim("taken", note={"a": "1"}) as claim:  # done before, but that does not count here
            assert (claim.attempt, claim.key, claim.note, claim.state) == (1, "taken", {"a": "1"}, RecordState.PENDING)
            claim.check()
            claim.annotate(b="2")
            assert claim.note == {"a": "1", "b": "2"}
            assert claim.derived_key("step") == claim.derived_key("step") != claim.derived_key("other")
            claim.complete(5)
            claim.complete_in(object(), 5)
            assert claim.state is RecordState.COMPLETED
        with pytest.raises(ZeroDivisionError), client.claim("new"):
            raise ZeroDivisionError
        with client.claim("new") as inner:
            assert inner.token > claim.token
    assert client.read("new") is None
    assert client.read("taken").value is None
    assert len(client.events) == before


def test_the_work_still_finds_a_claim(client: SyncClient) -> None:
    @client(key="k:{x}")
    def work(x: int) -> str:
        key: str = here(client).key
        return key

    with disabled():
        assert [work(1), work(2)] == ["k:1", "k:2"]


def test_it_nests_and_is_back_after_an_exception() -> None:
    assert switch.off == 0
    with disabled():
        with disabled():
            assert switch.off
        assert switch.off
        with pytest.raises(ZeroDivisionError), disabled():
            raise ZeroDivisionError
        assert switch.off
    assert switch.off == 0


def test_one_switch_object_may_be_used_again() -> None:
    off = disabled()
    with off, off:
        assert switch.off == 2
    assert switch.off == 0


def test_threads_may_overlap_in_any_order() -> None:
    def often() -> None:
        for _ in range(2_000):
            with disabled():
                assert switch.off > 0

    threads = [threading.Thread(target=often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert switch.off == 0


def test_as_a_decorator_of_plain_functions() -> None:
    once = Once(MemoryStore())
    effects: list[int] = []

    @once
    def work() -> None:
        effects.append(1)

    @disabled()
    def twice(times: int = 2) -> str:
        """Calls it."""
        for _ in range(times):
            work()
        return "done"

    assert (twice(), twice.__name__, twice.__doc__) == ("done", "twice", "Calls it.")
    assert len(effects) == 2
    assert switch.off == 0
    once.close()


async def test_as_a_decorator_of_async_functions_and_as_an_async_block() -> None:
    effects: list[int] = []

    async def do() -> None:
        effects.append(1)

    async with AsyncOnce(MemoryStore()) as once:
        work = once(do)

        @disabled()
        async def twice() -> None:
            for _ in range(2):
                await work()

        await twice()
        assert (len(effects), switch.off) == (2, 0)
        async with disabled():
            await work()
        assert (len(effects), switch.off) == (3, 0)
        await work()
        await work()
        assert len(effects) == 4


def test_functions_that_yield_are_refused() -> None:
    def fixture() -> Any:
        yield 1

    with pytest.raises(ConfigurationError, match="inside it"):
        disabled()(fixture)
