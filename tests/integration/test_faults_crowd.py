"""Writers that do not let go of a file, and crowds that wait for one key."""

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
from tests.clients import Backend, SyncClient
from tests.faulty import FaultyNetwork, FaultyStore
from tests.integration.faulty_clients import Effect, faulty, network

__all__ = ["faulty", "network"]  # fixtures, told here so that pytest finds them


# ── F52, F56: a writer that does not let go ──


@pytest.mark.fault("F52", "F56")
def test_an_open_transaction_of_somebody_else_ends_in_a_typed_error_within_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(SQLiteStore(path), lease="300ms") as once, closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        assert once.run("before", Effect()) == "sent"
        theirs.execute("BEGIN IMMEDIATE")
        effect = Effect()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="another writer"):
            once.run("order 7", effect)
        assert time.monotonic() - began < 1.5
        assert effect.times == 0
        assert once.outcome("before", Effect()).replayed, "replays need no lock"
        theirs.execute("ROLLBACK")
        assert once.run("order 7", effect) == "sent"


@pytest.mark.fault("F52", "F56")
async def test_an_open_transaction_of_somebody_else_does_not_block_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    async with AsyncOnce(SQLiteStore(path), lease="600ms") as once:
        assert await once.read("before") is None
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as theirs:
            theirs.execute("BEGIN IMMEDIATE")
            ticks: list[float] = []

            async def heartbeat() -> None:
                while True:
                    ticks.append(time.monotonic())
                    await asyncio.sleep(0.01)

            beating = asyncio.create_task(heartbeat())

            async def effect() -> str:
                return "sent"

            with pytest.raises(StoreUnavailable):
                await once.run("order 7", effect)
            beating.cancel()
            theirs.execute("ROLLBACK")
        assert len(ticks) > 20, "the loop went on while the store was asked three times"


@pytest.mark.fault("F56", "F45")
def test_a_long_transaction_of_somebody_else_makes_leases_overdue_but_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(SQLiteStore(path), lease="300ms", settle_timeout="5s") as once:
        told: list[str] = []
        once.subscribe(lambda event: told.append(event.name))
        with once.claim("order 7") as claim, closing(sqlite3.connect(path, isolation_level=None)) as theirs:
            theirs.execute("BEGIN IMMEDIATE")
            time.sleep(0.6)
            theirs.execute("COMMIT")
            claim.complete("done")
        assert "overdue" in told
        assert "lost" not in told
        entry = once.read("order 7")
        assert entry is not None
        assert entry.value == "done"


# ── F69: a crowd ──


@pytest.mark.fault("F69")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_two_hundred_threads_that_wait_for_one_key_all_get_the_one_result(
    kind: str, tmp_path: Path, network: FaultyNetwork, clock: Any
) -> None:
    inner = Backend(kind, tmp_path, clock).open()
    crowd = 200
    with Once(FaultyStore(inner, network), wait="30s") as once:
        runs: list[int] = []
        line = threading.Barrier(crowd)
        answers: list[Any] = []

        def slow() -> str:
            runs.append(1)
            time.sleep(0.3)
            return "sent"

        def one() -> None:
            line.wait(30)
            try:
                answers.append(once.outcome("order 7", slow))
            except Exception as error:
                answers.append(error)

        threads = [threading.Thread(target=one) for _ in range(crowd)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(runs) == 1
        assert sorted({getattr(answer, "kind", repr(answer)) for answer in answers}) == ["executed", "replayed"]
        assert [answer.value for answer in answers] == ["sent"] * crowd
        assert network.calls["claim"] <= crowd * 16, "waiters ask again with growing pauses, not in a spin"
        assert not getattr(inner, "_waiting", {}), "nobody is left on the list of those to wake"
    if isinstance(inner, SQLiteStore):
        assert not inner._connection.is_open, "opened by many at once, and still closed by one"


@pytest.mark.fault("F69")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_thousand_tasks_that_wait_for_one_key_all_get_the_one_result(
    kind: str, tmp_path: Path, network: FaultyNetwork, clock: Any
) -> None:
    inner = Backend(kind, tmp_path, clock).open()
    crowd = 1000
    async with AsyncOnce(FaultyStore(inner, network), wait="60s") as once:
        runs: list[int] = []

        async def slow() -> str:
            runs.append(1)
            await asyncio.sleep(0.3)
            return "sent"

        outcomes = await asyncio.gather(*(once.outcome("order 7", slow) for _ in range(crowd)))
        assert len(runs) == 1
        assert [outcome.value for outcome in outcomes] == ["sent"] * crowd
        assert sum(outcome.executed for outcome in outcomes) == 1
        assert network.calls["claim"] <= crowd * 16
        assert not getattr(inner, "_waiting", {})
    if isinstance(inner, SQLiteStore):
        assert not inner._connection.is_open


@pytest.mark.fault("F69")
def test_waiters_are_woken_by_the_result_and_not_by_their_next_look(faulty: SyncClient, network: FaultyNetwork) -> None:
    """The pauses have grown to half a second by then; being woken takes a few milliseconds."""
    worker = faulty.another(wait="30s")  # waits on the very store that settles, so that it can be woken
    go = threading.Event()

    def slow() -> str:
        assert go.wait(20)
        return "sent"

    first = worker.start(worker.run, "order 7", slow)
    until = time.monotonic() + 5
    while not network.calls["claim"] and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(0.05)
    others = [worker.start(worker.run, "order 7", slow) for _ in range(6)]  # six are not all awake by chance
    time.sleep(1.5)
    asked = network.calls["claim"]
    began = time.monotonic()
    go.set()
    assert [one.result(10) for one in (first, *others)] == ["sent"] * 7
    assert time.monotonic() - began < 0.2
    assert asked < 7 * 20
