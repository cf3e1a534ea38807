"""Counters in the store: written once, by the hour, and purged."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import Once, StoreUnavailable
from onceward.protocol.counters import COUNTS_RETENTION, HOUR, CounterTotals
from onceward.runtime import background as writing
from onceward.stores.sqlite import SQLiteStore
from tests.clients import SyncClient
from tests.integration.counting import counted, counting, sums, work

__all__ = ["counting"]  # fixtures, listed here so that pytest finds them


def test_what_is_left_is_written_at_close(counting: SyncClient, client: SyncClient) -> None:
    counting.run("a", work)
    counting.close()
    assert sums(client) == {"executed": 1}


def test_without_a_thread_the_counters_are_written_at_close(counting: SyncClient, client: SyncClient) -> None:
    counting.once.counters.totals._begin = lambda: None
    counting.run("a", work)
    assert not counting.once.background.is_running
    counting.close()
    assert sums(client) == {"executed": 1}


def test_clients_are_added_up(client: SyncClient) -> None:
    for number in range(3):
        other = client.another(counters=True)
        other.run(f"k{number}", work)
        other.run(f"k{number}", work)
        counted(other)
    assert sums(client) == {"executed": 3, "replayed": 3}


def test_a_client_that_does_not_count_writes_nothing(client: SyncClient) -> None:
    other = client.another()
    other.run("a", work)
    other.close()
    assert sums(client) == {}
    assert other.once.counters is None


@contextlib.contextmanager
def lost_replies(client: SyncClient, *, applied: bool, times: int = 1) -> Iterator[list[int]]:
    """Lose the replies of `save_counts`, whether or not the store applied the call."""
    kind: Any = type(client.once.store)
    original = kind.save_counts
    lost: list[int] = []

    async def failing(store: Any, counter_rows: Any, *, timeout: float) -> int:
        if not counter_rows or len(lost) >= times:
            return int(await original(store, counter_rows, timeout=timeout))
        lost.append(len(counter_rows))
        if applied:
            await original(store, counter_rows, timeout=timeout)
        raise StoreUnavailable("lost on the way")

    kind.save_counts = failing
    try:
        yield lost
    finally:
        kind.save_counts = original


@pytest.mark.parametrize("applied", [True, False])
def test_what_was_not_confirmed_is_written_again_and_counts_once(counting: SyncClient, applied: bool) -> None:
    counting.run("a", work)
    with lost_replies(counting, applied=applied) as lost:
        assert not counting.once.counters.write()
        assert lost == [1]
        [event] = counting.events_named("counting_failed")
        assert "lost on the way" in event.error
        counting.run("b", work)
        assert counted(counting) == {"executed": 2}
    assert counted(counting) == {"executed": 2}


def test_each_hour_has_its_own_counters(counting: SyncClient) -> None:
    counting.run("a", work)
    counted(counting)
    counting.clock.advance("1h")
    counting.run("b", work)
    counting.run("c", work)
    counted(counting)
    tally: CounterTotals = counting.wait(counting.once.stats("5h"))
    assert tally.series(["executed"]) == [0, 0, 0, 1, 2]
    assert counting.wait(counting.once.stats("1h")).total("executed") == 2


def test_stats_round_up_to_the_current_hour_and_stop_at_the_retention(
    counting: SyncClient,
) -> None:
    counting.run("a", work)
    assert counted(counting) == {"executed": 1}
    for since in ("30m", "0s"):
        assert counting.wait(counting.once.stats(since)).series(["executed"]) == [1]
    kept: CounterTotals = counting.wait(counting.once.stats("365d"))
    assert kept.total("executed") == 1
    assert kept.latest - kept.since == COUNTS_RETENTION // HOUR


def test_a_store_that_was_down_over_the_hour_gets_both_hours_later(counting: SyncClient) -> None:
    counting.run("a", work)
    with lost_replies(counting, applied=False, times=2):
        assert not counting.once.counters.write()
        counting.clock.advance("1h")
        counting.run("b", work)
        assert not counting.once.counters.write()
    assert counted(counting) == {"executed": 2}
    assert counting.wait(counting.once.stats("2h")).series(["executed"]) == [1, 1]


def test_what_is_counted_after_a_clock_was_set_right_again_is_seen(counting: SyncClient) -> None:
    counting.clock.advance("24h")
    counting.run("a", work)
    assert counted(counting) == {"executed": 1}
    counting.clock.set_back("24h")
    counting.run("b", work)
    assert counted(counting) == {"executed": 1}
    assert counting.wait(counting.once.stats("2h")).series(["executed"]) == [0, 1]


def test_one_call_of_the_store_writes_everything(counting: SyncClient) -> None:
    for name in ("a", "b", "c"):
        counting.run(name, work)
        with counting.claim(name, name=f"operation {name}"):
            pass
    with lost_replies(counting, applied=True, times=0) as lost, counted_calls(counting) as calls:
        assert counting.once.counters.write()
        assert counting.once.counters.write(), "writes nothing if there is nothing new"
    assert lost == []
    assert calls == [0, 1], "one call for the time, and one row for all scopes"


@contextlib.contextmanager
def counted_calls(client: SyncClient) -> Iterator[list[int]]:
    kind: Any = type(client.once.store)
    original = kind.save_counts
    calls: list[int] = []

    async def watched(store: Any, counter_rows: Any, *, timeout: float) -> int:
        calls.append(len(counter_rows))
        return int(await original(store, counter_rows, timeout=timeout))

    kind.save_counts = watched
    try:
        yield calls
    finally:
        kind.save_counts = original


def test_counters_are_written_periodically(counting: SyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert writing.WRITE_INTERVAL == 60, "a killed process may lose a minute of counts"
    monkeypatch.setattr(writing, "WRITE_INTERVAL", 0.005)
    written = threading.Event()
    book = counting.once.counters._book
    original = book.written

    def notify() -> None:
        original()
        written.set()

    book.written = notify
    counting.run("a", work)
    assert written.wait(60)
    assert sums(counting) == {"executed": 1}


def test_old_counters_are_purged(counting: SyncClient, client: SyncClient) -> None:
    counting.run("a", work)
    counted(counting)
    client.clock.advance_microseconds(COUNTS_RETENTION + 2 * HOUR)
    client.purge()
    assert client.drive(client.once.store.expire_counts(10, timeout=5)) == 0, "they are gone already"
    assert client.wait(client.once.stats("1000h")).hours == {}


def test_old_counters_are_purged_when_new_ones_are_written(tmp_path: Path, clock: Any) -> None:
    store = SQLiteStore(tmp_path / "once.db", clock=clock)
    with Once(store, counters=True) as once:
        assert once.counters is not None
        for number in range(3):
            once.run(f"a{number}", work)
            assert once.counters.write()
            clock.advance("1h")
        clock.advance_microseconds(COUNTS_RETENTION)
        once.run("b", work)
        assert once.counters.write()
        with contextlib.closing(sqlite3.connect(tmp_path / "once.db")) as raw:
            assert len(raw.execute("SELECT hour FROM onceward_counters").fetchall()) == 2
