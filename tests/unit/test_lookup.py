"""A completed key is answered by a lookup: no claim is made, and the caller sees no difference."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from onceward import AlreadyDone, AsyncOnce, Executed, Mismatch, Once, Replayed, StoreUnavailable, sliding
from onceward.errors import ResultCorrupt, ResultNotStored, Stopping, WrongRuntime
from onceward.observe import Event
from onceward.protocol.record import CompletedRecord
from onceward.protocol.requests import Answer, ClaimRequest
from onceward.results.encryption import AesGcm
from onceward.stores import MemoryStore
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.clock import FakeClock
from tests.raw_sqlite import busy, run_on

LARGE = "large " * 20_000


class Counted:
    """Counts its claims and lookups."""

    claims = looks = 0
    lookup_fails = False

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        self.claims += 1
        answers: list[Answer] = await super().claim(requests, timeout=timeout)  # type: ignore[misc]
        return answers

    def lookup_completed(self, id: bytes, fingerprint: bytes, /) -> CompletedRecord | None:
        self.looks += 1
        if self.lookup_fails:
            raise StoreUnavailable("the look fails")
        found: CompletedRecord | None = super().lookup_completed(id, fingerprint)  # type: ignore[misc]
        return found


class Memory(Counted, MemoryStore): ...  # type: ignore[misc]


class SQLite(Counted, SQLiteStore): ...


Store = Memory | SQLite


@pytest.fixture(params=["memory", "file", "sqlite in memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Store:
    if request.param == "memory":
        return Memory(clock=clock)
    return SQLite(tmp_path / "once.db" if request.param == "file" else ":memory:", clock=clock, synchronous="NORMAL")


@pytest.fixture
def once(store: Store) -> Iterator[Once]:
    with Once(store) as client:
        yield client


def test_a_key_that_is_done_is_not_claimed_again(once: Once, store: Store) -> None:
    assert once.run("k", int, "7") == 7
    assert store.claims == 1
    for _ in range(3):
        assert once.run("k", int, "7") == 7
    assert store.claims == 1
    assert store.looks >= 3


def test_the_first_call_of_a_client_opens_the_store_and_asks(store: Store) -> None:
    with Once(store) as client:
        client.run("k", int, "7")
    assert (store.claims, store.looks) == (1, 0)


def nothing() -> None:
    """None is a result like any other."""


RESULTS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "small": (lambda: {"paid": 12}, {}),
    "none": (nothing, {}),
    "large": (lambda: LARGE, {}),
    "not kept, as declared": (lambda: 1, {"store_result": False}),
    "not storable": (object, {}),
}


@pytest.mark.fault("F20", "F21")
@pytest.mark.parametrize("cipher", [None, AesGcm(bytes(32))], ids=["plain", "encrypted"])
@pytest.mark.parametrize("kind", RESULTS)
def test_the_outcome_is_the_one_that_a_claim_would_have_given(store: Store, kind: str, cipher: Any) -> None:
    work, choices = RESULTS[kind]
    with Once(store, cipher=cipher, **choices) as once:
        done = once(key="k", name="work")(work)
        assert isinstance(done.outcome(), Executed)
        by_look = done.outcome()
        asked = kind == "not storable"  # its reason is in the full record, which a lookup does not return
        assert store.claims == 1 + asked
        once.engine.lookup = None
        by_claim = done.outcome()
        assert store.claims == 2 + asked
    assert type(by_look) is type(by_claim) is Replayed
    assert by_look == by_claim
    if kind == "not storable":
        with pytest.raises(ResultNotStored):
            by_look.unwrap()
    else:
        assert by_look.unwrap() == (None if choices else work())


def test_a_caller_that_wants_no_result_gets_none(once: Once) -> None:
    once(key="k", name="work")(lambda: 7)()
    outcome: Any = once(key="k", name="work", store_result=False)(lambda: 7).outcome()
    assert (outcome.value, outcome.unwrap()) == (None, None)


@pytest.mark.rival(26)
def test_a_sliding_window_still_slides(once: Once, store: Store, clock: FakeClock) -> None:
    work = once(key="k", window=sliding("8h"))(nothing)
    work()
    clock.advance("59m")
    work()
    assert store.claims == 1, "nothing to write in the first eighth"
    clock.advance("1m")
    work()
    assert store.claims == 2, "only a claim moves it"
    clock.advance("7h59m")
    assert isinstance(work.outcome(), Replayed), "it was moved, eight hours from then"
    clock.advance("8h")
    assert isinstance(work.outcome(), Executed)


def test_a_window_that_is_over_is_claimed_anew(once: Once, clock: FakeClock) -> None:
    work = once(key="k", window="1h")(nothing)
    work()
    clock.advance("1h")
    assert isinstance(work.outcome(), Executed)


@pytest.mark.fault("F18")
def test_another_payload_is_a_mismatch_and_not_a_replay(once: Once) -> None:
    once.run("k", int, "7")
    assert isinstance(once.outcome("k", int, "8"), Mismatch)


def test_the_choices_about_what_is_done_hold(once: Once) -> None:
    raising = once(key="a", name="a", on_done="raise")(lambda: 7)
    skipping = once(key="b", name="b", on_done="skip")(lambda: 7)
    assert (raising(), skipping()) == (7, 7)
    with pytest.raises(AlreadyDone) as caught:
        raising()
    assert (caught.value.value, skipping()) == (7, None)


def test_each_is_reported_as_skipped_with_the_same_details(once: Once, store: Store) -> None:
    once.run("k", int, "7")
    events: list[Event] = []
    once.subscribe(events.append)
    once.run("k", int, "7")
    once.engine.lookup = None
    once.run("k", int, "7")
    assert [one.name for one in events] == ["skipped", "skipped"]
    for name in ("key", "scope", "reason", "attempt", "token", "state", "owner"):
        assert getattr(events[0], name) == getattr(events[1], name), name
    assert store.claims == 2


def test_a_client_that_stops_or_is_closed_answers_no_more_calls(store: Store) -> None:
    once = Once(store)
    once.run("k", int, "7")
    once.stop()
    with pytest.raises(Stopping, match="stopped claiming"):
        once.run("k", int, "7")
    once.close()
    with pytest.raises(Stopping, match="closed"):
        once.run("k", int, "7")
    assert store.looks == 0


def test_a_blocking_client_on_a_loop_is_refused_before_it_looks(once: Once, store: Store) -> None:
    once.run("k", int, "7")

    async def call() -> None:
        once.run("k", int, "7")

    with pytest.raises(WrongRuntime):
        asyncio.run(call())
    assert store.looks == 0


@pytest.mark.fault("F50")
def test_a_look_that_fails_leaves_it_to_the_claim(once: Once, store: Store) -> None:
    once.run("k", int, "7")
    store.lookup_fails = True
    assert once.run("k", int, "7") == 7
    assert (store.looks, store.claims) == (1, 2)


@pytest.mark.fault("F25")
def test_a_corrupt_result_is_an_error_and_never_run_again(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(SQLiteStore(path)) as once:
        once.run("k", int, "7")
        raw = sqlite3.connect(path)
        with raw:
            raw.execute("UPDATE onceward_records SET result = CAST(result || x'00' AS BLOB)")
        raw.close()
        with pytest.raises(ResultCorrupt):
            once.run("k", int, "7")


async def seven() -> int:
    return 7


async def large() -> str:
    return LARGE


async def test_on_a_loop_only_what_cannot_block_it_is_looked_at(store: Store) -> None:
    async with AsyncOnce(store) as once:
        assert [await once.run("k", seven) for _ in range(3)] == [7, 7, 7]
    assert (store.claims, store.looks) == ((1, 2) if store.inline else (3, 0))


async def test_on_a_loop_a_large_result_is_decoded_elsewhere(clock: FakeClock) -> None:
    store = Memory(clock=clock)
    async with AsyncOnce(store) as once:
        assert [await once.run("k", large) for _ in range(2)] == [LARGE, LARGE]
    assert (store.claims, store.looks) == (2, 1)


async def test_an_async_client_that_stops_answers_no_more_calls() -> None:
    store = Memory()
    async with AsyncOnce(store) as once:
        await once.run("k", seven)
        once.stop()
        with pytest.raises(Stopping):
            await once.run("k", seven)
    assert store.looks == 0


def test_a_look_waits_for_no_writer_and_no_other_thread(tmp_path: Path) -> None:
    store = SQLite(tmp_path / "once.db")
    with Once(store) as once:
        once.run("k", int, "7")
        writer = sqlite3.connect(tmp_path / "once.db", isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        assert once.run("k", int, "7") == 7
        writer.execute("ROLLBACK")
        writer.close()
        assert store.claims == 1
        looked_up = (once.key("k").id, b"")
        assert store.lookup(*looked_up) is not None
        with busy(store):
            assert store.lookup(*looked_up) is None
        assert run_on(store, lambda _: store.lookup(*looked_up)) is None, "as from a signal handler inside a call"
