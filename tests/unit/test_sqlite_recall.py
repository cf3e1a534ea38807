"""What the SQLite store recalls saves it a look; what has changed since is never overwritten."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import Once
from onceward.bridge import run
from onceward.model.record import ClaimRequest, Complete, Record, Release, Renewal, State, Verdict
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.recall import MOST, Recall
from onceward.testing.clock import FakeClock
from onceward.worlds.threads import Threads

ID = b"k".rjust(32, b".")


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[SQLiteStore]:
    store = opened(tmp_path, clock)
    yield store
    run(store.close())


def opened(place: Path, clock: FakeClock) -> SQLiteStore:
    store = SQLiteStore(place / "once.db", clock=clock, synchronous="NORMAL")
    run(store.open(Threads()))
    return store


def claim(store: SQLiteStore, nonce: bytes = b"one", lease: int = 600_000_000) -> tuple[Verdict, Record]:
    [answer] = run(store.claim([ClaimRequest(ID, "app/op", "k", nonce, lease)], timeout=5))
    assert answer.record is not None
    return answer.verdict, answer.record


def complete(store: SQLiteStore, record: Record) -> Verdict:
    done = Complete(record.id, record.token, record.nonce, result=b"done", digest=b"d")
    return run(store.settle([done], timeout=5))[0].verdict


def statements(store: SQLiteStore) -> list[str]:
    told: list[str] = []
    connection: Any = store._link._connection
    connection.set_trace_callback(lambda text: told.append(text.split()[0]))
    return told


@pytest.mark.mission("A1")
def test_a_fresh_call_is_a_look_an_insert_and_an_update(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/once.db") as once:
        once.run("warm", int)
        store: Any = once.store
        told = statements(store)
        once.run("fresh", int)
        assert told == ["SELECT", "INSERT", "UPDATE"]
        told.clear()
        once.run("fresh", int)
        assert told == ["SELECT"]


def test_a_key_that_came_between_the_look_and_the_claim_is_not_granted_again(
    store: SQLiteStore, tmp_path: Path, clock: FakeClock
) -> None:
    other = opened(tmp_path, clock)
    assert store.glance(ID, b"") is None
    assert claim(other, b"theirs")[0] is Verdict.ACQUIRED
    verdict, record = claim(store, b"ours")
    assert (verdict, record.nonce) == (Verdict.RUNNING, b"theirs")
    run(other.close())


@pytest.mark.rival(1)
def test_who_was_replaced_is_lost_though_its_own_record_is_recalled(
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
    assert (stored.state, stored.note) == (State.COMPLETED, {"path": "a"})
    run(other.close())


def test_a_record_that_was_removed_by_hand_is_lost_not_made_anew(store: SQLiteStore, tmp_path: Path) -> None:
    _, record = claim(store)
    with sqlite3.connect(tmp_path / "once.db") as connection:
        connection.execute("DELETE FROM onceward_records")
    assert complete(store, record) is Verdict.LOST
    assert run(store.read([ID], timeout=5))[0].record is None


def test_a_claim_that_was_given_back_can_be_claimed_again(store: SQLiteStore) -> None:
    _, record = claim(store)
    assert run(store.settle([Release(ID, record.token, record.nonce)], timeout=5))[0].verdict is Verdict.OK
    assert claim(store, b"two")[0] is Verdict.ACQUIRED


def test_it_recalls_no_more_than_it_may() -> None:
    recall = Recall()
    for number in range(MOST + 10):
        recall.keep(Record(id=b"%d" % number, scope="s", key="k", state=State.PENDING, token=1))
    assert recall.take(b"9") is None
    assert recall.take(b"10") is not None
    assert recall.take(b"10") is None
    recall.keep(Record(id=b"done", scope="s", key="k", state=State.COMPLETED, token=1))
    assert recall.take(b"done") is None
