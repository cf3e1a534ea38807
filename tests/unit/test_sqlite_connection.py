"""One connection, many callers: deadlines, re-entry, opening and closing."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from onceward.errors import ConfigurationError, Reentrant, StoreUnavailable
from onceward.protocol.requests import Verdict
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite import connection as sqlite_connection
from onceward.testing.clock import FakeClock
from tests.raw_sqlite import busy, database_of, run_on, traced, write_on
from tests.unit.sqlite_calls import (
    Mode,
    acquire,
    claim,
    complete,
    ident,
    look,
    request,
)
from tests.unit.sqlite_fixtures import mode, path, store

__all__ = ["mode", "path", "store"]  # fixtures, imported here so that pytest finds them


@pytest.mark.fault("F52", "F60")
def test_a_foreign_writer_is_waited_for_until_the_deadline_and_no_longer(
    store: SQLiteStore, path: Path, mode: Mode
) -> None:
    other = store.clone()
    mode(other.open(mode.runtime))
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable, match="another writer") as caught:
        mode(other.claim([request("a")], timeout=0.06))
    assert 0.05 < time.monotonic() - begin < 4
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    writer.execute("COMMIT")
    writer.close()
    assert mode(other.claim([request("a")], timeout=5))[0].verdict is Verdict.ACQUIRED
    mode(other.close())


def test_the_wait_for_other_threads_counts_too(store: SQLiteStore) -> None:
    with busy(store), pytest.raises(StoreUnavailable, match="other calls of this process"):
        claim_within(store, 0.02)
    assert claim_within(store, 5) is Verdict.ACQUIRED


def claim_within(store: SQLiteStore, timeout: float) -> Verdict:
    return run(store.claim([request("a")], timeout=timeout))[0].verdict


def test_a_call_whose_time_is_over_before_its_turn_does_nothing(store: SQLiteStore, path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="timed out while it waited"):
        claim_within(store, 0)
    assert look(path, "SELECT count(*) FROM onceward_records") == [(0,)]


def test_the_busy_timeout_follows_the_call_and_costs_no_statement_while_it_stays(store: SQLiteStore) -> None:
    with traced(store) as seen:
        claim(store, "warm")
        seen.clear()
        claim(store, "a")
        assert not [line for line in seen if "busy" in line]
        run(store.read([ident("a")], timeout=7))
        [statement] = [line for line in seen if "busy" in line]
    assert 5_500 < int(statement.removeprefix("PRAGMA busy_timeout = ")) <= 7_000


def test_a_call_that_interrupts_a_call_of_its_own_thread_is_refused_and_does_no_harm(
    store: SQLiteStore, path: Path
) -> None:
    def interrupted(cursor: sqlite3.Cursor) -> None:
        cursor.execute("BEGIN IMMEDIATE")
        for attempt in (lambda: claim(store, "a"), lambda: run(store.close())):
            with pytest.raises(Reentrant):
                attempt()
        cursor.execute("ROLLBACK")

    run_on(store, interrupted)
    run(store.open(ThreadRuntime()))
    assert claim(store, "a").verdict is Verdict.ACQUIRED


def test_an_exception_inside_a_transaction_leaves_nothing_behind(store: SQLiteStore, path: Path) -> None:
    def interrupted(cursor: sqlite3.Cursor) -> None:
        cursor.execute("INSERT INTO onceward_records (id, scope, key, token, updated_at) VALUES (x'01', '', '', 1, 1)")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_on(store, interrupted)
    assert look(path, "SELECT count(*) FROM onceward_records") == [(0,)]
    assert claim(store, "a").verdict is Verdict.ACQUIRED


@pytest.mark.fault("F27")
@pytest.mark.parametrize("strike", [1, 2])
def test_a_second_interrupt_while_the_first_is_handled_leaves_no_transaction_open(
    store: SQLiteStore, path: Path, strike: int
) -> None:
    """Otherwise the next claim would be written into it, be granted, and never be committed."""
    owned = acquire(store, "a")
    calls = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        """Python checks for signals where a function begins: the second arrives there, while the first is raised."""
        nonlocal calls
        if (
            event == "call"
            and frame.f_back is not None
            and frame.f_back.f_code is sqlite_connection.SQLiteConnection.write.__code__
        ):
            calls += 1
            if calls == strike:
                raise KeyboardInterrupt

    def interrupted(cursor: sqlite3.Cursor) -> None:
        cursor.execute("DELETE FROM onceward_records")
        sys.setprofile(profile)
        raise KeyboardInterrupt

    before = sys.getprofile()
    try:
        with pytest.raises(KeyboardInterrupt):
            write_on(store, interrupted)
    finally:
        sys.setprofile(before)
    assert claim(store, "b").verdict is Verdict.ACQUIRED
    assert look(path, "SELECT key FROM onceward_records ORDER BY key") == [("a",), ("b",)]
    assert complete(store, owned).verdict is Verdict.OK


def test_settling_and_forgetting_wake_watchers(store: SQLiteStore) -> None:
    woken: list[str] = []
    mine = acquire(store, "a")
    stop = store.watch(mine.id, lambda: woken.append("a"))
    store.watch(ident("b"), lambda: woken.append("b"))
    complete(store, mine)
    assert woken == ["a"]
    run(store.forget([mine.id], force=False, timeout=5))
    assert woken == ["a", "a"]
    stop()
    run(store.forget([mine.id], force=False, timeout=5))
    assert woken == ["a", "a"]


@pytest.mark.parametrize(("synchronous", "value"), [("FULL", 2), ("normal", 1), ("EXTRA", 3)])
def test_the_settings_of_the_connection(path: Path, synchronous: str, value: int) -> None:
    store = SQLiteStore(path, synchronous=synchronous)
    run(store.open(ThreadRuntime()))

    def pragma(name: str) -> Any:
        return run_on(store, lambda cursor: cursor.execute(f"PRAGMA {name}").fetchall()[0][0])

    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == value
    assert pragma("wal_autocheckpoint") == 8_000
    assert pragma("cache_size") == -65_536
    run(store.close())
    assert not path.with_name("once.db-wal").exists(), "the last connection removes the WAL file"


def test_off_is_not_a_choice(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="OFF"):
        SQLiteStore(path, synchronous="OFF")


def test_a_closed_store_says_so_and_may_be_opened_again(path: Path, mode: Mode) -> None:
    store = SQLiteStore(path)
    with pytest.raises(StoreUnavailable, match="not open"):
        mode(store.claim([request("a")], timeout=5))
    mode(store.open(mode.runtime))
    mode(store.open(mode.runtime))
    assert mode(store.claim([request("a")], timeout=5))[0].verdict is Verdict.ACQUIRED
    mode(store.close())
    mode(store.close())
    with pytest.raises(StoreUnavailable, match="not open"):
        mode(store.read([ident("a")], timeout=5))
    mode(store.open(mode.runtime))
    assert mode(store.read([ident("a")], timeout=5))[0].verdict is Verdict.OK
    mode(store.close())


def test_the_runtime_of_the_last_open_is_used(path: Path) -> None:
    store = SQLiteStore(path)
    loop = AsyncioRuntime()

    async def on_the_loop() -> str:
        await store.open(loop)
        names: list[str] = []
        store.watch(ident("a"), lambda: names.append("woken"))
        await store.claim([request("a")], timeout=5)
        return threading.current_thread().name

    asyncio.run(on_the_loop())
    run(store.open(ThreadRuntime()))
    assert claim(store, "b").verdict is Verdict.ACQUIRED, (
        "the thread runtime works although the asyncio runtime opened it"
    )
    run(store.close())
    loop.close()


def test_on_an_event_loop_sqlite_runs_on_another_thread(path: Path) -> None:
    loop = AsyncioRuntime()
    where: list[int] = []

    class RecordingClock:
        def now(self) -> int:
            where.append(threading.get_ident())
            return 1

    store = SQLiteStore(path, clock=RecordingClock())

    async def use() -> None:
        await store.open(loop)
        await store.claim([request("a")], timeout=5)
        await store.close()

    asyncio.run(use())
    loop.close()
    assert where
    assert threading.get_ident() not in where


def test_a_clone_has_a_connection_of_its_own_on_the_same_data(store: SQLiteStore) -> None:
    clone = store.clone()
    assert clone is not store
    assert clone.clock is store.clock
    run(clone.open(ThreadRuntime()))
    acquire(store, "a")
    assert claim(clone, "a", b"other").verdict is Verdict.RUNNING
    assert database_of(clone) is not database_of(store)
    run(clone.close())


def test_memory_is_one_shared_connection_without_joining(clock: FakeClock, mode: Mode) -> None:
    store = SQLiteStore(":memory:", clock=clock)
    assert store.name == "sqlite://:memory:"
    assert store.inline
    assert store.clone() is store
    mode(store.open(mode.runtime))
    run(store.clone().open(ThreadRuntime()))  # as the heartbeat does
    assert mode(store.claim([request("a")], timeout=5))[0].verdict is Verdict.ACQUIRED
    results: list[Verdict] = []
    thread = threading.Thread(target=lambda: results.append(claim(store, "a", b"other").verdict))
    thread.start()
    thread.join()
    assert results == [Verdict.RUNNING]
    assert store.transactions is None
    run(store.open(ThreadRuntime()))
    run(store.close())
