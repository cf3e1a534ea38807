"""The local cache returns completed results exactly as the store would, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from onceward import AsyncOnce, ConfigurationError, Once, StoreUnavailable, sliding
from onceward.protocol.ports import Store
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, Complete
from onceward.stores import MemoryStore
from onceward.stores.cached import CachedStore
from onceward.testing import FakeClock
from tests.clients import Backend


class CountingStore(MemoryStore):
    """Counts its claims, and answers as briefly as it may. `down` makes it unreachable."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.asked = 0
        self.down = False

    @property
    def lookup(self) -> None:  # type: ignore[override]  # as a store on a server
        return None

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        self.asked += len(requests)
        return await super().claim(requests, timeout=timeout)

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        answers = await super().settle(settlements, **how)
        return [
            replace(answer, record=None) if isinstance(one, Complete) else answer
            for one, answer in zip(settlements, answers, strict=True)
        ]

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        answers = await super().forget(ids, **how)
        if self.down:
            raise StoreUnavailable("the reply was lost")
        return answers


class Stage:
    """A client with a cache of two results, and the calls that reach its store."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.store = CountingStore(clock)
        self.once = Once(CachedStore(self.store, 2, clock=clock), window="1h")
        self.effects: list[int] = []
        self.work = self.once(key="k:{x}")(self.do)

    def do(self, x: int, payload: str = "") -> int:
        self.effects.append(x)
        return len(self.effects)

    def asked(self) -> int:
        asked, self.store.asked = self.store.asked, 0
        return asked


@pytest.fixture
def stage(clock: FakeClock) -> Stage:
    return Stage(clock)


def test_a_completed_result_is_answered_without_asking(stage: Stage) -> None:
    assert stage.work(1) == 1
    assert stage.asked() == 1
    assert (stage.work(1), stage.asked()) == (1, 1)  # the store left the record out of its answer to the completion
    assert [stage.work.outcome(1).kind for _ in range(3)] == ["replayed"] * 3
    assert (stage.work(1), stage.asked()) == (1, 0)


def test_a_replay_from_the_store_is_remembered_too(stage: Stage) -> None:
    Once(stage.store, window="1h")(key="k:{x}")(stage.do)(1)
    stage.asked()
    assert [stage.work(1), stage.work(1)] == [1, 1]
    assert stage.asked() == 1


def test_the_cache_is_bounded_and_keeps_what_was_used_last(stage: Stage) -> None:
    for x in (1, 1, 2, 2):
        stage.work(x)
    stage.work(1)  # so 2 is the older one
    for _ in range(2):
        stage.work(3)
    stage.asked()
    assert (stage.work(1), stage.asked()) == (1, 0)
    assert (stage.work(3), stage.asked()) == (3, 0)
    assert (stage.work(2), stage.asked()) == (2, 1)
    cached = stage.once.store
    assert isinstance(cached, CachedStore)
    assert len(cached._results) == 2
    assert stage.effects == [1, 2, 3]


def test_a_mismatch_comes_from_the_cache_too(stage: Stage) -> None:
    for _ in range(2):
        stage.work(1, "a")
    stage.asked()
    outcome = stage.work.outcome(1, "b")
    assert (outcome.kind, getattr(outcome, "arguments", None), stage.asked()) == ("mismatch", ("payload",), 0)
    assert (stage.work(1, "a"), stage.asked()) == (1, 0)  # and does not push the result out


def test_a_result_whose_window_is_over_answers_no_more(stage: Stage) -> None:
    for _ in range(2):
        stage.work(1)
    stage.asked()
    stage.clock.advance("59m")
    assert (stage.work(1), stage.asked()) == (1, 0)
    stage.clock.advance("2m")
    assert (stage.work(1), stage.asked()) == (2, 1)


def test_a_sliding_window_still_slides(stage: Stage) -> None:
    work = stage.once(key="s:{x}", window=sliding("8m"))(stage.do)
    assert work(1) == 1
    for _ in range(5):
        stage.clock.advance("5m")
        assert work(1) == 1  # each use extends the window, also one that the cache could answer
    stage.clock.advance("9m")
    assert work(1) == 2


def test_the_store_s_clock_decides_not_ours(stage: Stage) -> None:
    ours = FakeClock()  # ten hours behind the store's
    stage.clock.advance("10h")
    once = Once(CachedStore(stage.store, 2, clock=ours), window="1h")
    work = once(key="k:{x}")(stage.do)
    assert (work(1), work(1), stage.asked()) == (1, 1, 2)
    ours.advance("59m")
    assert (work(1), stage.asked()) == (1, 0)
    ours.advance("2m")
    stage.clock.advance("61m")
    assert (work(1), stage.asked()) == (2, 1)


def test_forget_is_forgotten_here_as_well(stage: Stage) -> None:
    assert [stage.work(1), stage.work(1)] == [1, 1]
    assert stage.work.forget(1) is True
    assert [stage.work(1), stage.work(1)] == [2, 2]
    stage.store.down = True  # forgotten, but this client does not know it
    with pytest.raises(StoreUnavailable):
        stage.work.forget(1)
    assert stage.work(1) == 3


def test_only_completed_results_are_kept(stage: Stage) -> None:
    def fails(x: int) -> None:
        raise ConnectionError

    work = stage.once(key="f:{x}", max_attempts=1)(fails)
    assert [work.outcome(1).kind, work.outcome(1).kind] == ["failed", "failed"]
    assert stage.asked() == 2


def test_a_cached_result_is_a_copy(stage: Stage) -> None:
    def items(x: int) -> list[int]:
        return [x]

    work = stage.once(key="l:{x}")(items)
    work(1).append(99)
    work(1).append(98)
    assert work(1) == [1]


async def test_the_async_client_has_the_cache_too(clock: FakeClock) -> None:
    store = CountingStore(clock)
    effects: list[int] = []

    async def do(x: int) -> int:
        effects.append(x)
        return x

    async with AsyncOnce(CachedStore(store, 10, clock=clock)) as once:
        work = once(key="k:{x}")(do)
        assert [await work(1) for _ in range(3)] == [1, 1, 1]
    assert (store.asked, effects) == (2, [1])


def test_it_is_opt_in_and_passes_the_rest_on(stage: Stage) -> None:
    assert isinstance(Once("memory://").store, MemoryStore)
    cached = Once("memory://", cache=10).store
    assert isinstance(cached, CachedStore)
    assert cached.name == "memory (cached)"
    assert cached.notifications is not None
    with pytest.raises(ConfigurationError, match="at least 1"):
        CachedStore(MemoryStore(), 0)
    stage.work(1)
    assert stage.once.purge() == 0
    entry = stage.work.read(1)
    assert entry is not None
    assert entry.value == 1
    with pytest.raises(ConfigurationError, match="cannot join"), stage.once.within(object()):
        pytest.fail("memory has no transactions")


# ── one client, one cache ──


class Both:
    """The sync and the async client of one client, called from sync code."""

    def __init__(self, store: Store) -> None:
        self.once = Once(store, cache=10, window="1h", fingerprint="none")
        self.runs = 0

    def run(self, *, aio: bool) -> int:
        async def work() -> int:
            return self.work()

        return asyncio.run(self.once.aio.run("k", work)) if aio else self.once.run("k", self.work)

    def forget(self, *, aio: bool) -> bool:
        return asyncio.run(self.once.aio.forget("k")) if aio else self.once.forget("k")

    def work(self) -> int:
        self.runs += 1
        return self.runs


@pytest.mark.parametrize("aio", [False, True])
def test_a_key_forgotten_by_one_client_is_forgotten_by_the_other(backend: Backend, aio: bool) -> None:
    both = Both(backend.open())
    assert [both.run(aio=False), both.run(aio=True)] == [1, 1]
    both.forget(aio=aio)
    assert [both.run(aio=not aio), both.run(aio=aio)] == [2, 2]
    both.once.close()


def test_the_sync_and_async_clients_share_the_cache_size(clock: FakeClock) -> None:
    store = CountingStore(clock)
    both = Both(store)
    assert [both.run(aio=False), both.run(aio=True), both.run(aio=False), store.asked] == [1, 1, 1, 2]


def test_the_cache_uses_the_clock_of_the_store(backend: Backend) -> None:
    both = Both(backend.open())
    assert both.run(aio=False) == 1
    backend.clock.advance("61m")
    assert both.run(aio=False) == 2
    both.once.close()


@pytest.mark.parametrize("verb", ["claim", "settle"])
async def test_an_answer_on_its_way_does_not_bring_back_what_was_forgotten_meanwhile(
    clock: FakeClock, verb: str
) -> None:
    arrived, go = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        slow = ""

        async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
            return await self.late("claim", await super().claim(requests, timeout=timeout))

        async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
            return await self.late("settle", await super().settle(settlements, **how))

        async def late(self, verb: str, answers: list[Answer]) -> list[Answer]:
            if verb == self.slow:
                self.slow = ""
                arrived.set()
                await go.wait()
            return answers

    store = Slow(clock=clock)
    runs: list[int] = []

    async def work() -> int:
        runs.append(1)
        return len(runs)

    once = AsyncOnce(store, cache=10)
    if verb == "claim":
        await AsyncOnce(store).run("k", work)
    store.slow = verb
    call = asyncio.create_task(once.run("k", work))
    await arrived.wait()
    await once.forget("k")
    go.set()
    assert await call == 1
    assert await once.run("k", work) == 2
