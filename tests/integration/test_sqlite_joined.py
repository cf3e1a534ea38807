"""Inside the caller's own transaction: PROTOCOL 9 and 10, as far as the store goes."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from onceward.errors import ConfigurationError, RetryTransaction, StoreBroken, StoreUnavailable
from onceward.protocol.capabilities import JoinedStore
from onceward.protocol.requests import Release, Renewal, Verdict
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.joined import SQLiteJoined
from onceward.testing import FakeClock
from onceward.testing.fake_threads import FakeRuntime
from tests.integration.sqlite_joining import ask, call, complete, connection, do, effects, joined, path, store
from tests.integration.sqlite_workers import claim, ident, request

__all__ = ["connection", "joined", "path", "store"]  # fixtures, re-exported so that pytest finds them


@pytest.mark.mission("A1")
@pytest.mark.fault("F57")
def test_claim_effect_and_result_commit_together_or_not_at_all(
    joined: SQLiteJoined, connection: sqlite3.Connection, store: SQLiteStore, path: Path
) -> None:
    as_port: JoinedStore = joined
    assert as_port is joined
    assert do(joined, connection).verdict is Verdict.ACQUIRED
    connection.rollback()
    assert effects(path) == []
    assert run(store.read([ident("order 7")], timeout=5))[0].verdict is Verdict.ABSENT, "as if never claimed"
    assert do(joined, connection).verdict is Verdict.ACQUIRED
    assert effects(path) == [], "nothing is committed here"
    connection.commit()
    assert effects(path) == ["order 7"]
    again = do(joined, connection)
    assert again.verdict is Verdict.REPLAY
    assert again.record is not None
    assert again.record.result == b"r"
    connection.execute("INSERT INTO effects VALUES ('something else')")
    connection.commit()
    assert effects(path) == ["order 7", "something else"], "after a replay the transaction stays usable"


def test_a_joined_claim_has_no_lease_and_lasts_until_the_transaction_ends(
    joined: SQLiteJoined, connection: sqlite3.Connection
) -> None:
    record = ask(joined).record
    assert record is not None
    assert record.lease_until is None
    assert ask(joined).verdict is Verdict.RUNNING, "the same transaction sees its own claim"
    assert (
        call(joined, joined.settle([Release(record.id, record.token, record.nonce)], timeout=5))[0].verdict
        is Verdict.OK
    )
    connection.rollback()


@pytest.mark.fault("F41")
@pytest.mark.rival(1)
def test_a_leased_claim_is_completed_inside_the_transaction_only_by_its_owner(
    joined: SQLiteJoined, connection: sqlite3.Connection, store: SQLiteStore, path: Path
) -> None:
    mine = claim(store, "order 7")
    assert mine is not None
    renewal = Renewal(mine.id, mine.token, mine.nonce, 1_000_000, note={"a": "b"})
    assert call(joined, joined.renew([renewal], timeout=5))[0].verdict is Verdict.OK
    assert complete(joined, mine) is Verdict.OK
    connection.rollback()
    run(store.forget([mine.id], force=True, timeout=5))
    thief = claim(store, "order 7")
    assert thief is not None
    assert complete(joined, mine) is Verdict.LOST
    connection.rollback()
    assert complete(joined, thief) is Verdict.OK
    connection.commit()
    assert run(store.read([mine.id], timeout=5))[0].record is not None


def test_undo_returns_to_the_point_and_keep_stays_in_the_transaction(
    joined: SQLiteJoined, connection: sqlite3.Connection, path: Path
) -> None:
    call(joined, joined.begin(timeout=5))
    assert do(joined, connection, "kept").verdict is Verdict.ACQUIRED
    call(joined, joined.keep())
    call(joined, joined.begin(timeout=5))
    do(joined, connection, "outer")
    call(joined, joined.begin(timeout=5))
    do(joined, connection, "inner")
    call(joined, joined.undo())
    assert ask(joined, "outer").verdict is Verdict.REPLAY
    call(joined, joined.undo())
    assert connection.in_transaction
    assert effects(path) == []
    assert ask(joined, "outer").verdict is Verdict.ACQUIRED
    connection.commit()
    assert effects(path) == ["kept"]


def test_two_joined_on_one_connection_have_points_of_their_own(
    store: SQLiteStore, connection: sqlite3.Connection, path: Path
) -> None:
    first, second = store.join(connection, ThreadRuntime()), store.join(connection, ThreadRuntime())
    run(first.begin(timeout=5))
    run(second.begin(timeout=5))
    do(second, connection, "undone")
    run(second.undo())
    do(first, connection, "kept")
    run(first.keep())
    connection.commit()
    assert effects(path) == ["kept"]


def test_the_users_open_transaction_blocks_every_claim_until_it_ends_and_busy_means_overdue_not_lost(
    joined: SQLiteJoined, connection: sqlite3.Connection, store: SQLiteStore
) -> None:
    mine = claim(store, "held")
    assert mine is not None
    do(joined, connection)
    renewal = Renewal(mine.id, mine.token, mine.nonce, 1_000_000)
    with pytest.raises(StoreUnavailable):
        run(store.renew([renewal], timeout=0.02))
    with pytest.raises(StoreUnavailable):
        run(store.claim([request("b")], timeout=0.02))
    assert call(joined, joined.renew([renewal], timeout=5))[0].verdict is Verdict.OK, (
        "due renewals are written in the transaction"
    )
    connection.commit()
    assert run(store.renew([renewal], timeout=5))[0].verdict is Verdict.OK


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN; SELECT count(*) FROM effects"])
def test_a_deferred_transaction_that_read_first_and_lost_the_race_must_be_repeated(
    joined: SQLiteJoined, connection: sqlite3.Connection, store: SQLiteStore, begin: str
) -> None:
    has_read = "SELECT" in begin
    for statement in begin.split(";"):
        connection.execute(statement).fetchall()
    claim(store, "another writer")
    if not has_read:
        assert ask(joined).verdict is Verdict.ACQUIRED, "without a snapshot there is nothing stale"
        connection.rollback()
        return
    with pytest.raises(RetryTransaction, match="roll back and repeat") as caught:
        ask(joined)
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert connection.in_transaction, "the caller rolls back"
    connection.rollback()
    assert ask(joined).verdict is Verdict.ACQUIRED
    connection.rollback()


def test_a_deferred_transaction_that_read_first_and_has_no_rival_continues(
    joined: SQLiteJoined, connection: sqlite3.Connection, path: Path
) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM effects").fetchall()
    do(joined, connection)
    connection.commit()
    assert effects(path) == ["order 7"]


@pytest.mark.parametrize("begin", [None, "BEGIN", "BEGIN; SELECT * FROM effects"])
def test_another_writer_is_waited_for_until_the_deadline(
    joined: SQLiteJoined, connection: sqlite3.Connection, path: Path, begin: str | None
) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    for statement in (begin or "").split(";"):
        connection.execute(statement).fetchall()
    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match="another writer") as caught:
        call(joined, joined.claim([request("a", None)], timeout=0.05))
    assert not isinstance(caught.value, RetryTransaction)
    assert 0.05 <= time.monotonic() - start < 4
    writer.execute("ROLLBACK")
    writer.close()
    assert ask(joined, "a").verdict is Verdict.ACQUIRED
    connection.rollback()


def test_the_event_loop_keeps_running_while_another_writer_is_waited_for(
    store: SQLiteStore, connection: sqlite3.Connection, path: Path
) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    async def both() -> tuple[int, Verdict]:
        joined = store.join(connection, AsyncioRuntime())
        waiting = asyncio.ensure_future(joined.claim([request("a", None)], timeout=10))
        turns = 0
        while turns < 50:
            await asyncio.sleep(0.001)
            turns += 1
        assert not waiting.done()
        writer.execute("COMMIT")
        return turns, (await waiting)[0].verdict

    assert asyncio.run(both()) == (50, Verdict.ACQUIRED)
    connection.rollback()
    writer.close()


def test_on_a_fake_clock_waiting_for_another_writer_takes_no_real_time(
    store: SQLiteStore, connection: sqlite3.Connection, path: Path
) -> None:
    clock = FakeClock()
    joined = store.join(connection, FakeRuntime(clock))
    before, started = clock.elapsed, time.monotonic()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another writer"):
            run(joined.claim([request("a", None)], timeout=20))
    assert clock.elapsed - before == pytest.approx(20_000_000, rel=0.01)
    assert time.monotonic() - started < 20


def test_two_requests_for_one_key_are_refused(joined: SQLiteJoined, connection: sqlite3.Connection) -> None:
    with pytest.raises(ConfigurationError, match="two requests"):
        call(joined, joined.claim([request("a", None), request("a", None)], timeout=5))
    assert not connection.in_transaction


def test_a_table_that_is_gone_is_a_broken_store(joined: SQLiteJoined, connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE onceward_records")
    with pytest.raises(StoreBroken, match="Onceward's tables"):
        ask(joined)
    connection.rollback()
