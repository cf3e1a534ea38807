"""What is special about the SQLite store. What every store must do is in the conformance kit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.protocol.ports import Store
from onceward.protocol.requests import AnySettlement, ClaimRequest, Complete, Fail, Park, Release, Renewal, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore, table
from onceward.testing.clock import FakeClock
from tests.unit.sqlite_calls import (
    LEASE,
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


def test_it_is_what_the_ports_ask_for(store: SQLiteStore) -> None:
    as_store: Store = store
    assert as_store.inline is False
    assert as_store.notifications is not None
    assert as_store.transactions is not None
    assert SQLiteStore(":memory:").transactions is None


@pytest.mark.mission("A1")
def test_claim_complete_replay_and_the_rows_in_between(path: Path, clock: FakeClock, mode: Mode) -> None:
    store = SQLiteStore(path, clock=clock)
    mode(store.open(mode.runtime))
    fresh = mode(store.claim([request("order 7", owner="me", note={"a": "b"})], timeout=5))[0]
    assert fresh.record is not None
    seen = look(path, "SELECT state, token, nonce, lease_until, owner, note, result, typeof(id) FROM onceward_records")
    assert seen == [("PENDING", clock.now(), b"n", clock.now() + LEASE, "me", '{"a":"b"}', None, "blob")]
    done = Complete(fresh.record.id, fresh.record.token, b"n", result=b"", digest=b"d")
    assert mode(store.settle([done], timeout=5))[0].verdict is Verdict.OK
    assert look(path, "SELECT state, lease_until, result FROM onceward_records") == [(None, None, b"")], (
        "NULL: COMPLETED"
    )
    again = mode(store.claim([request("order 7", b"other")], timeout=5))[0]
    assert again.verdict is Verdict.REPLAY
    assert again.record is not None
    assert again.record.result == b""
    mode(store.close())


@pytest.mark.rival(4)
def test_a_call_that_writes_nothing_takes_no_lock(store: SQLiteStore, path: Path) -> None:
    complete(store, acquire(store, "done"))
    acquire(store, "running")
    claim(store, "other payload", fingerprint=b"\1a")
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")  # another process writes, for as long as this test takes
    asked = [request("done", b"x"), request("running", b"x"), request("other payload", b"x", fingerprint=b"\1b")]
    answers = run(store.claim(asked, timeout=0.5))
    assert [answer.verdict for answer in answers] == [Verdict.REPLAY, Verdict.RUNNING, Verdict.MISMATCH]
    assert run(store.read([ident("done")], timeout=0.5))[0].verdict is Verdict.OK
    with pytest.raises(StoreUnavailable, match="another writer"):
        run(store.claim([*asked, request("new")], timeout=0.5))
    writer.execute("ROLLBACK")
    writer.close()
    assert run(store.claim([*asked, request("new")], timeout=5))[3].verdict is Verdict.ACQUIRED


def test_a_key_that_another_worker_claims_between_read_and_lock_is_evaluated_again(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = store.clone()
    run(other.open(ThreadRuntime()))
    fetch = table.Selection.fetch
    raced: list[bool] = []

    def overtaken(self: table.Selection, cursor: sqlite3.Cursor, ids: Any) -> table.Found:
        found = fetch(self, cursor, ids)
        if not raced:
            raced.append(True)
            assert claim(other, "order 7", b"faster").verdict is Verdict.ACQUIRED
        return found

    monkeypatch.setattr(table.Selection, "fetch", overtaken)
    answer = claim(store, "order 7", b"slower")
    assert answer.verdict is Verdict.RUNNING
    assert answer.record is not None
    assert answer.record.nonce == b"faster"
    run(other.close())


def test_an_expired_lease_that_was_renewed_between_read_and_lock_is_not_taken_over(
    store: SQLiteStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = store.clone()
    run(owner.open(ThreadRuntime()))
    mine = acquire(owner, "order 7")
    clock.advance_microseconds(LEASE)
    original = table.write_if_unchanged
    raced: list[bool] = []

    def overtaken(*arguments: Any) -> Any:
        if not raced:
            raced.append(True)
            renewal = Renewal(mine.id, mine.token, mine.nonce, LEASE)
            assert run(owner.renew([renewal], timeout=5))[0].verdict is Verdict.OK
        return original(*arguments)

    monkeypatch.setattr("onceward.stores.sqlite.store.write_if_unchanged", overtaken)
    assert claim(store, "order 7", b"late").verdict is Verdict.RUNNING
    run(owner.close())


def test_a_batch_is_one_transaction_answers_come_in_the_order_of_the_requests(store: SQLiteStore, path: Path) -> None:
    complete(store, acquire(store, 3))
    words = list(range(1_203))
    answers = run(store.claim([request(word, b"batch") for word in words], timeout=5))
    assert [answer.record.key for answer in answers if answer.record] == [str(word) for word in words]
    assert {answer.verdict for answer in answers if answer.record and answer.record.key != "3"} == {Verdict.ACQUIRED}
    assert answers[3].verdict is Verdict.REPLAY
    renewals = [Renewal(a.record.id, a.record.token, b"batch", 2 * LEASE) for a in reversed(answers) if a.record]
    verdicts = [answer.verdict for answer in run(store.renew(renewals, timeout=5))]
    assert verdicts.count(Verdict.OK) == 1_202
    assert verdicts[-4] is Verdict.LOST, "the completed one"
    endings: list[AnySettlement] = [
        Complete(renewals[0].id, renewals[0].token, b"batch"),
        Fail(renewals[1].id, renewals[1].token, b"batch", error="e\udc80"),
        Park(renewals[2].id, renewals[2].token, b"batch"),
        Release(renewals[3].id, renewals[3].token, b"batch"),
        Complete(renewals[4].id, renewals[4].token, b"stranger"),
    ]
    assert [answer.verdict for answer in run(store.settle(endings, timeout=5))] == [Verdict.OK] * 4 + [Verdict.LOST]
    counted = dict(look(path, "SELECT state, count(*) FROM onceward_records GROUP BY state"))
    assert counted == {None: 2, "FAILED": 1, "FREE": 1, "PARKED": 1, "PENDING": 1_198}


@pytest.mark.fault("F39")
def test_two_requests_for_one_key_in_a_batch_are_refused_before_anything_happens(
    store: SQLiteStore, path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="two requests"):
        run(store.claim([request("a"), request("b"), request("a", b"m")], timeout=5))
    assert look(path, "SELECT count(*) FROM onceward_records") == [(0,)]


@pytest.mark.fault("F1", "F2", "F6", "F7")
@pytest.mark.rival(23)
def test_ids_are_compared_byte_by_byte_whatever_the_key_looks_like(store: SQLiteStore) -> None:
    keys = ["5", "a", "A", "á", "a ", "a\0b", "a\0c", "x" * 1_000_000]
    for key in keys:
        assert claim(store, key).verdict is Verdict.ACQUIRED
    odd = [b"5", b"\x05", b"a", b"A", b"a ", b"a\0", b"a\0b", b"\xff\xfe"]
    answers = run(store.claim([ClaimRequest(id, "s", "k", b"n", LEASE) for id in odd], timeout=5))
    assert {answer.verdict for answer in answers} == {Verdict.ACQUIRED}
    for key in keys:
        answer = claim(store, key, b"other")
        assert answer.verdict is Verdict.RUNNING
        assert answer.record is not None
        assert answer.record.key == key


def test_every_transition_that_changes_nothing_writes_nothing(store: SQLiteStore, path: Path) -> None:
    mine = acquire(store, "a")
    complete(store, mine)
    watcher = sqlite3.connect(path)

    def version() -> Any:
        return watcher.execute("PRAGMA data_version").fetchall()[0][0]

    before = version()
    calls: list[Callable[[], Any]] = [
        lambda: claim(store, "a", b"other"),
        lambda: complete(store, mine),
        lambda: complete(store, mine, result=b"other"),
        lambda: run(store.renew([Renewal(mine.id, mine.token, b"n", LEASE)], timeout=5)),
        lambda: run(store.forget([ident("nothing")], force=False, timeout=5)),
        lambda: run(store.purge(10, timeout=5)),
    ]
    for call in calls:
        call()
        assert version() == before
    complete(store, acquire(store, "b"))
    assert version() != before
    watcher.close()
