"""Purge, scan and counts, on a file that holds a million records as well as on one that holds ten."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onceward.errors import StoreUnavailable
from onceward.protocol.ports import Filter
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Complete, Park, Release, Validity, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite import maintenance as upkeep
from onceward.testing.clock import FakeClock
from tests.raw_sqlite import run_on, traced
from tests.unit.sqlite_calls import (
    DAY,
    HOUR,
    acquire,
    change,
    claim,
    complete,
    ident,
    look,
    request,
)
from tests.unit.sqlite_fixtures import path, store

__all__ = ["path", "store"]  # fixtures, imported here so that pytest finds them


@pytest.mark.rival(22, 28)
def test_purge_deletes_only_records_that_no_longer_count_and_no_young_token(
    store: SQLiteStore, clock: FakeClock
) -> None:
    complete(store, acquire(store, "over"), lasting=HOUR)
    complete(store, acquire(store, "forever"))
    complete(store, acquire(store, "in its window"), lasting=40 * DAY)
    run(store.settle([Release(free := ident("free"), acquire(store, "free").token, b"n")], timeout=5))
    acquire(store, "abandoned")
    acquire(store, "abandoned, park", after_crash=AfterCrash.PARK)
    acquire(store, "last attempt", max_attempts=1)
    clock.advance("59m")
    assert run(store.purge(100, timeout=5)) == 0, "the tokens are younger than the clock's margin"
    clock.advance("2m")
    complete(store, acquire(store, "young"), lasting=1)
    clock.advance("1s")
    assert run(store.purge(100, timeout=5)) == 2
    assert run(store.read([ident("over"), free], timeout=5))[0].verdict is Verdict.ABSENT
    clock.advance("30d")
    assert run(store.purge(100, timeout=5)) == 2, "the young one, and the abandoned"
    left = run(store.scan(Filter(), cursor=None, limit=100, timeout=5)).records
    assert {record.key for record in left} == {"forever", "in its window", "abandoned, park", "last attempt"}


@pytest.mark.rival(28)
def test_purge_goes_in_chunks_so_that_a_claim_passes_in_between(
    store: SQLiteStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = run(store.claim([request(n) for n in range(1_300)], timeout=5))
    done = [Complete(a.record.id, a.record.token, b"n", validity=Validity(lasting=1)) for a in answers if a.record]
    run(store.settle(done, timeout=5))
    clock.advance("2h")
    sizes = []
    original = upkeep.purge

    def counted(cursor: sqlite3.Cursor, ids: list[bytes], now: int) -> int:
        sizes.append(len(ids))
        return original(cursor, ids, now)

    monkeypatch.setattr(upkeep, "purge", counted)
    assert run(store.purge(1_200, timeout=5)) == 1_200
    assert sizes == [500, 500, 200]
    assert run(store.purge(1_200, timeout=5)) == 100
    assert run(store.purge(1_200, timeout=5)) == 0


def test_abandoned_attempts_are_found_among_those_that_still_run(store: SQLiteStore, clock: FakeClock) -> None:
    run(store.claim([request(n) for n in range(25)], timeout=5))
    clock.advance("31d")
    run(store.claim([request("new"), request("newer")], timeout=5))
    assert [run(store.purge(10, timeout=5)) for _ in range(4)] == [10, 10, 5, 0]
    assert len(run(store.scan(Filter(), cursor=None, limit=100, timeout=5)).records) == 2


@pytest.mark.parametrize(
    ("statement", "values", "index"),
    [
        (upkeep.SELECT_EXPIRED, (1, 1, 1), "onceward_purgeable"),
        (upkeep.SELECT_FREE, (1, 1, 1), "onceward_unfinished"),
        (upkeep.SELECT_ABANDONED, (1, 1, 1, 1, 1), "onceward_unfinished"),
    ],
)
def test_purge_finds_its_records_by_index_not_by_reading_a_million(
    store: SQLiteStore, path: Path, statement: str, values: tuple[Any, ...], index: str
) -> None:
    plan = [row[3] for row in look(path, f"EXPLAIN QUERY PLAN {statement}", *values)]
    assert len(plan) == 1
    assert plan[0].startswith("SEARCH")
    assert index in plan[0]


@pytest.mark.fault("F67")
def test_records_of_a_newer_version_do_not_stand_in_the_way_of_others(
    store: SQLiteStore, path: Path, clock: FakeClock
) -> None:
    for word in range(3):
        complete(store, acquire(store, word), lasting=1)
    change(path, "UPDATE onceward_records SET min_reader = 2")
    clock.advance("1m")
    complete(store, acquire(store, "ours"), lasting=1)
    clock.advance("2h")
    assert run(store.purge(2, timeout=5)) == 1


@pytest.mark.fault("F66")
def test_a_record_that_is_claimed_again_between_read_and_lock_is_not_purged(
    store: SQLiteStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(store, acquire(store, "order 7"), lasting=1)
    complete(store, acquire(store, "order 8"), lasting=1)
    clock.advance("2h")
    claimant = store.clone()
    run(claimant.open(ThreadRuntime()))
    find = upkeep.candidates

    def raced(cursor: sqlite3.Cursor, now: int, limit: int) -> list[bytes]:
        ids = find(cursor, now, limit)
        if ids:
            claim(claimant, "order 7", b"again")
        return ids

    monkeypatch.setattr(upkeep, "candidates", raced)
    assert run(store.purge(10, timeout=5)) == 1
    answers = run(store.read([ident("order 7"), ident("order 8")], timeout=5))
    assert [answer.verdict for answer in answers] == [Verdict.OK, Verdict.ABSENT]
    run(claimant.close())


def test_scan_filters_and_turns_pages_by_id(store: SQLiteStore, clock: FakeClock) -> None:
    run(store.claim([request(n) for n in range(7)], timeout=5))
    run(store.settle([Park(acquire(store, "parked").id, clock.now(), b"n")], timeout=5))
    clock.advance("1m")
    run(store.claim([replace(request("elsewhere"), scope="other")], timeout=5))

    def keys(wanted: Filter) -> set[str]:
        return {record.key for record in run(store.scan(wanted, cursor=None, limit=100, timeout=5)).records}

    assert keys(Filter(states=(RecordState.PARKED,))) == {"parked"}
    assert keys(Filter(states=(RecordState.PARKED, RecordState.PENDING))) == {
        *map(str, range(7)),
        "parked",
        "elsewhere",
    }
    assert keys(Filter(scope="other")) == {"elsewhere"}
    assert keys(Filter(key="3", scope="shop")) == {"3"}
    assert keys(Filter(updated_before=clock.now())) == {*map(str, range(7)), "parked"}
    cursor, pages = None, []
    while True:
        page = run(store.scan(Filter(), cursor=cursor, limit=4, timeout=5))
        assert page.now == clock.now()
        pages.append([record.id for record in page.records])
        cursor = page.cursor
        if cursor is None:
            break
    assert [len(page) for page in pages] == [4, 4, 1]
    ids = [id for page in pages for id in page]
    assert ids == sorted(ids)
    assert run(store.counts(timeout=5)) == {
        ("shop", RecordState.PENDING): 7,
        ("shop", RecordState.PARKED): 1,
        ("other", RecordState.PENDING): 1,
    }


def test_a_search_for_parked_records_uses_an_index(store: SQLiteStore, path: Path) -> None:
    with traced(store) as seen:
        run(store.scan(Filter(states=(RecordState.PARKED,)), cursor=None, limit=5, timeout=5))
    plan = look(path, f"EXPLAIN QUERY PLAN {next(line for line in seen if line.startswith('SELECT'))}")
    assert "onceward_unfinished" in plan[0][3]


@pytest.mark.fault("F52")
def test_a_long_read_ends_when_its_time_is_over(store: SQLiteStore) -> None:
    def endless(cursor: sqlite3.Cursor) -> None:
        with upkeep.with_deadline(cursor, time.monotonic() + 0.02):
            cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")

    with pytest.raises(StoreUnavailable, match="exceeded its timeout"):
        run_on(store, endless)
    assert run(store.counts(timeout=5)) == {}
