"""The record cache of the SQLite store saves reads; a record that has changed since is never overwritten."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import Once
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import ClaimRequest, Complete, Release, Renewal, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.table import MAX_CACHED, RecordCache
from onceward.testing.clock import FakeClock
from tests.raw_sqlite import database_of

ID = b"k".rjust(32, b".")


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[SQLiteStore]:
    store = opened(tmp_path, clock)
    yield store
    run(store.close())


def opened(place: Path, clock: FakeClock) -> SQLiteStore:
    store = SQLiteStore(place / "once.db", clock=clock, synchronous="NORMAL")
    run(store.open(ThreadRuntime()))
    return store


def claim(store: SQLiteStore, nonce: bytes = b"one", lease: int = 600_000_000) -> tuple[Verdict, Record]:
    [answer] = run(store.claim([ClaimRequest(ID, "app/op", "k", nonce, lease)], timeout=5))
    assert answer.record is not None
    return answer.verdict, answer.record


def complete(store: SQLiteStore, record: Record) -> Verdict:
    done = Complete(record.id, record.token, record.nonce, result=b"done", digest=b"d")
    return run(store.settle([done], timeout=5))[0].verdict


def statements(store: SQLiteStore) -> list[str]:
    executed: list[str] = []
    database_of(store).set_trace_callback(lambda text: executed.append(text.split()[0]))
    return executed


@pytest.mark.mission("A1")
def test_a_fresh_call_is_a_select_an_insert_and_an_update(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/once.db") as once:
        once.run("warm", int)
        store: Any = once.store
        executed = statements(store)
        once.run("fresh", int)
        assert executed == ["SELECT", "INSERT", "UPDATE"]
        executed.clear()
        once.run("fresh", int)
        assert executed == ["SELECT"]


def test_a_key_created_between_the_read_and_the_claim_is_not_granted_again(
    store: SQLiteStore, tmp_path: Path, clock: FakeClock
) -> None:
    other = opened(tmp_path, clock)
    assert store.lookup(ID, b"") is None
    assert claim(other, b"theirs")[0] is Verdict.ACQUIRED
    verdict, record = claim(store, b"ours")
    assert (verdict, record.nonce) == (Verdict.RUNNING, b"theirs")
    run(other.close())


@pytest.mark.rival(1)
def test_a_replaced_owner_is_lost_though_its_own_record_is_cached(
    store: SQLiteStore, tmp_path: Path, clock: FakeClock
) -> None:
    other = opened(tmp_path, clock)
    _, late = claim(store, lease=1_000_000)
    clock.advance("2s")
    verdict, owner = claim(other, b"theirs")
    assert verdict is Verdict.ACQUIRED
    assert complete(store, late) is Verdict.LOST
    assert run(store.read([ID], timeout=5))[0].record == owner
    run(other.close())


def test_what_others_noted_meanwhile_survives_the_completion(
    store: SQLiteStore, tmp_path: Path, clock: FakeClock
) -> None:
    other = opened(tmp_path, clock)
    _, record = claim(store)
    clock.advance("1s")
    noted = Renewal(ID, record.token, record.nonce, 600_000_000, {"path": "a"})
    assert run(other.renew([noted], timeout=5))[0].verdict is Verdict.OK
    assert complete(store, record) is Verdict.OK
    stored = run(store.read([ID], timeout=5))[0].record
    assert stored is not None
    assert (stored.state, stored.note) == (RecordState.COMPLETED, {"path": "a"})
    run(other.close())


def test_a_record_that_was_removed_by_hand_is_lost_not_made_anew(store: SQLiteStore, tmp_path: Path) -> None:
    _, record = claim(store)
    with closing(sqlite3.connect(tmp_path / "once.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM onceward_records")
    assert complete(store, record) is Verdict.LOST
    assert run(store.read([ID], timeout=5))[0].record is None


def test_a_released_claim_can_be_claimed_again(store: SQLiteStore) -> None:
    _, record = claim(store)
    assert run(store.settle([Release(ID, record.token, record.nonce)], timeout=5))[0].verdict is Verdict.OK
    assert claim(store, b"two")[0] is Verdict.ACQUIRED


def test_a_completed_record_is_read_again(store: SQLiteStore) -> None:
    """Only an owner's next request uses the cache, and a completed record has no owner."""
    _, record = claim(store)
    assert complete(store, record) is Verdict.OK
    executed = statements(store)
    assert complete(store, record) is Verdict.OK
    assert executed == ["SELECT"]
    executed.clear()
    others = batch(store, [b"a", b"b"])
    run(store.send(completions(others), 5))
    executed.clear()
    run(store.send(completions(others), 5))
    assert executed == ["BEGIN", "SELECT", "COMMIT"]


def test_the_cache_size_is_limited() -> None:
    cache = RecordCache()
    for number in range(MAX_CACHED + 10):
        cache.add(Record(id=b"%d" % number, scope="s", key="k", state=RecordState.PENDING, token=1))
    wanted = [Release(id, 1, b"") for id in (b"9", b"10")]
    assert list(cache.take(wanted)) == [b"10"]
    assert cache.take(wanted) == {}, "returned once: by the next call the record may have changed"
    for number in range(MAX_CACHED + 1):
        cache.add_missing(b"%d" % number)
    asked = [ClaimRequest(b"%d" % number, "s", "k", b"n", None) for number in range(MAX_CACHED + 1)]
    assert cache.take(asked) == {b"%d" % MAX_CACHED: None}


def batch(store: SQLiteStore, ids: list[bytes], nonce: bytes = b"one") -> list[Record]:
    for id in ids:
        assert store.lookup(id, b"") is None
    requests = [ClaimRequest(id, "app/op", id.decode(), nonce, 600_000_000) for id in ids]
    first = Release(b"unknown", 1, b"x")  # a batch with a settlement takes the lock immediately
    answers = run(store.send([first, *requests], 5))
    assert [one.verdict for one in answers] == [Verdict.LOST, *[Verdict.ACQUIRED] * len(ids)]
    return [one.record for one in answers[1:] if one.record is not None]


def completions(records: list[Record]) -> list[Complete]:
    return [Complete(one.id, one.token, one.nonce, result=b"done", digest=b"d") for one in records]


def test_a_batch_of_cached_records_reads_nothing(store: SQLiteStore) -> None:
    records = batch(store, [b"a", b"b", b"c"])
    executed = statements(store)
    answers = run(store.send(completions(records), 5))
    assert [one.verdict for one in answers] == [Verdict.OK] * 3
    assert executed == ["BEGIN", "UPDATE", "UPDATE", "COMMIT"]  # of two rows, and of one


@pytest.mark.rival(1)
def test_in_a_batch_a_replaced_owner_is_lost_and_the_others_are_done(
    store: SQLiteStore, tmp_path: Path, clock: FakeClock
) -> None:
    other = opened(tmp_path, clock)
    records = batch(store, [b"a", b"b", b"c"])
    clock.advance("601s")
    [taken] = run(other.claim([ClaimRequest(b"b", "app/op", "b", b"theirs", 600_000_000)], timeout=5))
    answers = run(store.send(completions(records), 5))
    assert [one.verdict for one in answers] == [Verdict.OK, Verdict.LOST, Verdict.OK]
    assert run(store.read([b"b"], timeout=5))[0].record == taken.record
    run(other.close())


def test_in_a_batch_a_key_created_meanwhile_is_not_granted_again(
    store: SQLiteStore, tmp_path: Path, clock: FakeClock
) -> None:
    other = opened(tmp_path, clock)
    [mine] = batch(store, [b"mine"])
    for id in (b"a", b"b"):
        assert store.lookup(id, b"") is None
    batch(other, [b"b"], b"theirs")
    requests = [ClaimRequest(id, "app/op", id.decode(), b"ours", 600_000_000) for id in (b"a", b"b")]
    answers = run(store.send([*completions([mine]), *requests], 5))
    assert [one.verdict for one in answers] == [Verdict.OK, Verdict.ACQUIRED, Verdict.RUNNING]
    run(other.close())


def test_a_renewal_that_changes_nothing_is_still_looked_up(
    store: SQLiteStore, tmp_path: Path, clock: FakeClock
) -> None:
    """In the same microsecond there is nothing to write, so nothing would compare."""
    _, record = claim(store)
    with closing(sqlite3.connect(tmp_path / "once.db", isolation_level=None)) as connection:
        connection.execute("UPDATE onceward_records SET token = token + 1, nonce = x'00'")
    renewal = Renewal(ID, record.token, record.nonce, 600_000_000)
    assert run(store.renew([renewal], timeout=5))[0].verdict is Verdict.LOST
    assert clock.now() == record.claimed_at


def test_what_its_owner_noted_in_the_same_microsecond_through_another_store_survives(
    store: SQLiteStore, tmp_path: Path, clock: FakeClock
) -> None:
    other = opened(tmp_path, clock)
    _, record = claim(store)
    noted = Renewal(ID, record.token, record.nonce, 600_000_000, {"path": "a"})
    assert run(other.renew([noted], timeout=5))[0].verdict is Verdict.OK
    own = Renewal(ID, record.token, record.nonce, 700_000_000, {"source": "b"})
    assert run(store.renew([own], timeout=5))[0].verdict is Verdict.OK
    stored = run(store.read([ID], timeout=5))[0].record
    assert stored is not None
    assert stored.note == {"path": "a", "source": "b"}
    run(other.close())
