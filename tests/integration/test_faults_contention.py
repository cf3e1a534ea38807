"""Writers that keep a file locked, and many callers that wait for one key."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once, StoreUnavailable
from onceward.stores.sqlite import SQLiteStore
from tests.cli.calls import until
from tests.clients import TOO_LONG, Backend, SyncClient
from tests.faulty import FaultyNetwork, FaultyStore
from tests.integration.faulty_clients import Effect, faulty, network
from tests.raw_sqlite import connection_of

__all__ = ["faulty", "network"]  # fixtures, listed here so that pytest finds them


# ── F52, F56: a writer that keeps the file locked ──


@pytest.mark.fault("F52", "F56")
def test_an_open_transaction_of_another_writer_ends_in_a_typed_error_within_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(SQLiteStore(path)) as once, closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        assert once.run("before", Effect()) == "sent"
        theirs.execute("BEGIN IMMEDIATE")
        effect = Effect()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="another writer"):
            once.using(lease="300ms").run("order 7", effect)
        assert time.monotonic() - began < 10, "with the default lease, three calls wait for 15 seconds"
        assert effect.times == 0
        assert once.outcome("before", Effect()).replayed, "replays need no lock"
        theirs.execute("ROLLBACK")
        assert once.run("order 7", effect) == "sent"


@pytest.mark.fault("F52", "F56")
async def test_an_open_transaction_of_another_writer_does_not_block_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    async with AsyncOnce(SQLiteStore(path)) as once:
        assert await once.read("before") is None
        with closing(sqlite3.connect(path, isolation_level=None)) as theirs:
            theirs.execute("BEGIN IMMEDIATE")

            async def effect() -> str:
                return "sent"

            call = asyncio.create_task(once.run("order 7", effect))
            began = time.monotonic()
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert time.monotonic() - began < 4, "a loop that waits for the file stands still for 5 seconds"
            assert not call.done()
            theirs.execute("ROLLBACK")
            assert await call == "sent"


@pytest.mark.fault("F56", "F45")
def test_a_long_transaction_of_another_writer_makes_leases_overdue_but_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(SQLiteStore(path), lease="1s", settle_timeout="60s") as once:
        event_names: list[str] = []
        once.subscribe(lambda event: event_names.append(event.name))
        with once.claim("order 7") as claim, closing(sqlite3.connect(path, isolation_level=None)) as theirs:
            theirs.execute("BEGIN IMMEDIATE")
            until(lambda: "overdue" in event_names)
            theirs.execute("COMMIT")
            claim.complete("done")
        assert "lost" not in event_names
        entry = once.read("order 7")
        assert entry is not None
        assert entry.value == "done"


# ── F69: many callers ──


@pytest.mark.fault("F69")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_two_hundred_threads_that_wait_for_one_key_all_get_the_one_result(
    kind: str, tmp_path: Path, network: FaultyNetwork, clock: Any
) -> None:
    inner: Any = Backend(kind, tmp_path, clock).open()
    callers = 200
    with Once(FaultyStore(inner, network), wait="60s") as once:
        runs: list[int] = []
        barrier = threading.Barrier(callers)
        answers: list[Any] = []

        def slow() -> str:
            runs.append(1)
            time.sleep(0.3)
            return "sent"

        def one() -> None:
            barrier.wait(TOO_LONG)
            try:
                answers.append(once.outcome("order 7", slow))
            except Exception as error:
                answers.append(error)

        threads = [threading.Thread(target=one) for _ in range(callers)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TOO_LONG)
        assert len(runs) == 1
        assert sorted({getattr(answer, "kind", repr(answer)) for answer in answers}) == ["executed", "replayed"]
        assert [answer.value for answer in answers] == ["sent"] * callers
        polls = network.calls["claim"] / callers
        assert polls <= most_polls(began), "waiters poll with growing pauses, not in a busy loop"
        assert inner.watched_keys() == 0, "no waiter is left in the list of callers to wake"
    if isinstance(inner, SQLiteStore):
        assert not connection_of(inner).is_open, "opened by many threads concurrently, and still closed by one"


@pytest.mark.fault("F69")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_three_hundred_tasks_that_wait_for_one_key_all_get_the_one_result(
    kind: str, tmp_path: Path, network: FaultyNetwork, clock: Any
) -> None:
    inner: Any = Backend(kind, tmp_path, clock).open()
    callers = 300
    async with AsyncOnce(FaultyStore(inner, network), wait="60s") as once:
        runs: list[int] = []

        async def slow() -> str:
            runs.append(1)
            await asyncio.sleep(0.3)
            return "sent"

        began = time.monotonic()
        outcomes = await asyncio.gather(*(once.outcome("order 7", slow) for _ in range(callers)))
        assert len(runs) == 1
        assert [outcome.value for outcome in outcomes] == ["sent"] * callers
        assert sum(outcome.executed for outcome in outcomes) == 1
        assert network.calls["claim"] / callers <= most_polls(began)
        assert inner.watched_keys() == 0
    if isinstance(inner, SQLiteStore):
        assert not connection_of(inner).is_open


def most_polls(began: float) -> float:
    """Return how often one caller may poll: a few short pauses, then two to four times a second."""
    return 16 + 4 * (time.monotonic() - began)


@pytest.mark.fault("F69")
def test_waiters_are_woken_by_the_result_and_not_by_their_next_poll(
    faulty: SyncClient, network: FaultyNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their next poll is hours away."""
    monkeypatch.setattr("onceward.engine.acquire.FIRST_PAUSE", 3600.0)
    monkeypatch.setattr("onceward.engine.acquire.LONGEST_PAUSE", 3600.0)
    worker = faulty.another(wait="1h")  # waits on the same store object that settles, so that it can be woken
    go = threading.Event()

    def slow() -> str:
        assert go.wait(TOO_LONG)
        return "sent"

    calls = [worker.start(worker.run, "order 7", slow) for _ in range(7)]
    until(lambda: network.calls["claim"] == 1 + 6 * 2)  # each waiter claims twice, then it waits
    go.set()
    assert [one.result(TOO_LONG) for one in calls] == ["sent"] * 7
