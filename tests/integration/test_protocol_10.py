"""PROTOCOL 10, line by line: SQLite, and the user's own write transaction on the same file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from onceward import ConfigurationError, Once
from onceward.errors import RetryTransaction, StoreUnavailable
from onceward.protocol.record import RecordState
from onceward.runtime.threads import run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.joined import SQLiteJoined
from tests.clients import SyncClient
from tests.integration.joined_block import rows, users_connection, within

pytestmark = [pytest.mark.fault("F57")]


@pytest.fixture
def connection(sqlite_client: SyncClient) -> Iterator[sqlite3.Connection]:
    theirs = users_connection(sqlite_client)
    yield theirs
    theirs.close()


def lease_until(client: SyncClient, key: str) -> int:
    found: int | None = client.read(key).record.lease_until
    assert found is not None
    return found


# ── the user's open write transaction blocks the heartbeat and every claim: busy means overdue, not lost ──


@pytest.mark.mission("A4")
def test_busy_means_overdue_and_not_lost(sqlite_client: SyncClient, connection: sqlite3.Connection) -> None:
    with sqlite_client.claim("k", lease="1s") as claim:
        connection.execute("BEGIN IMMEDIATE")
        sqlite_client.clock.advance("2s")  # longer than the lease
        sqlite_client.renew_leases()
        assert [event.name for event in sqlite_client.events[-2:]] == ["renewal_failed", "overdue"]
        connection.rollback()
        sqlite_client.clock.advance("1s")  # the next try is due
        sqlite_client.renew_leases()
        claim.check()
        assert not sqlite_client.events_named("lost")
    assert sqlite_client.read("k").state is RecordState.COMPLETED


def test_every_claim_waits_until_the_users_transaction_ends(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    hasty = sqlite_client.another(lease="1s")
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable):
        hasty.run("k", lambda: "never begun")
    waiting = sqlite_client.start(sqlite_client.run, "other", lambda: "done")
    time.sleep(0.02)
    assert not waiting.done()
    connection.rollback()
    assert waiting.result(60) == "done"


# ── the joined transaction also writes this process's due renewals ──


@pytest.mark.mission("A4")
def test_the_end_of_the_block_renews_what_is_due_in_the_same_transaction(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    with sqlite_client.claim("due", lease="3s"), sqlite_client.claim("not due", lease="1h"):
        before, other = lease_until(sqlite_client, "due"), lease_until(sqlite_client, "not due")
        with within(sqlite_client, connection) as tx:
            tx.run("k", lambda: None)
            sqlite_client.clock.advance("2s")
        assert lease_until(sqlite_client, "due") == before, "Onceward has committed nothing"
        connection.commit()
        assert lease_until(sqlite_client, "due") >= before + 2_000_000
        assert lease_until(sqlite_client, "not due") == other


def test_complete_in_renews_what_else_is_due_in_the_same_transaction(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    with sqlite_client.claim("due", lease="3s"):
        before = lease_until(sqlite_client, "due")
        with sqlite_client.claim("k", lease="3s") as claim, connection:
            sqlite_client.clock.advance("2s")  # its own renewal is due as well, and would be written after its result
            claim.complete_in(connection, "value")
            assert lease_until(sqlite_client, "due") == before
        assert lease_until(sqlite_client, "due") >= before + 2_000_000
    assert sqlite_client.read("k").state is RecordState.COMPLETED


@pytest.mark.mission("A4")
def test_work_that_continues_after_its_result_was_committed_does_not_lose_its_key(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    """No other owner has the key: the record is COMPLETED under its own token."""
    with sqlite_client.claim("k", lease="3s") as claim:
        with connection:
            claim.complete_in(connection, "value")
        for _ in range(3):
            sqlite_client.clock.advance("2s")  # a renewal is due
            sqlite_client.renew_leases()
            claim.check()
    assert not sqlite_client.events_named("lost")
    assert sqlite_client.read("k").state is RecordState.COMPLETED


def test_complete_in_does_not_renew_the_claim_that_it_completes(
    sqlite_client: SyncClient, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[object] = []

    async def renew(_: SQLiteJoined, renewals: list[object], *, timeout: float) -> None:
        renewed.extend(renewals)

    monkeypatch.setattr(SQLiteJoined, "renew", renew)
    with sqlite_client.claim("due", lease="3s"), sqlite_client.claim("k", lease="3s") as claim, connection:
        sqlite_client.clock.advance("2s")
        claim.complete_in(connection, "value")
    assert len(renewed) == 1


def test_renewals_that_cannot_be_written_in_the_transaction_do_not_make_it_fail(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    sqlite_client.silent_owner("due", lease="3s")
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM effects").fetchall()
    with within(sqlite_client, connection):
        sqlite_client.run("elsewhere", lambda: None)  # the snapshot of the block grows stale
        sqlite_client.clock.advance("2s")
    assert connection.in_transaction
    connection.rollback()


# ── warn when it lasts over a third of the shortest lease ──


@pytest.mark.parametrize(("seconds", "warnings"), [(1, 0), (5, 1)])
def test_a_transaction_over_a_third_of_the_shortest_lease_is_reported(
    sqlite_client: SyncClient, connection: sqlite3.Connection, seconds: int, warnings: int
) -> None:
    with sqlite_client.claim("long", lease="1h"), sqlite_client.claim("short", lease="12s"):
        with within(sqlite_client, connection) as tx:
            tx.run("k", lambda: None)
            sqlite_client.clock.advance(f"{seconds}s")
        connection.commit()
    events = sqlite_client.events_named("slow_transaction")
    assert len(events) == warnings
    assert all("12.00 s" in event.reason for event in events)


def test_no_warning_is_emitted_while_no_lease_is_active(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    with within(sqlite_client, connection) as tx:
        tx.run("k", lambda: None)
        sqlite_client.clock.advance("1h")
    connection.commit()
    assert not sqlite_client.events_named("slow_transaction")


# ── a deferred transaction that read first fails immediately ──


def test_a_deferred_transaction_that_read_first_must_be_repeated_and_fails_immediately(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM effects").fetchall()
    sqlite_client.run("elsewhere", lambda: None)
    since = time.monotonic()
    raises = pytest.raises(RetryTransaction, match="roll back and repeat")
    with raises, connection, within(sqlite_client, connection) as tx:
        tx.run("k", lambda: pytest.fail("its claim could never be written"))
    assert time.monotonic() - since < 4, "waiting would not help"

    def work() -> None:
        connection.execute("INSERT INTO effects VALUES ('done')")

    with connection, within(sqlite_client, connection) as tx:
        tx.run("k", work)
    assert rows(sqlite_client) == ["done"]


# ── `:memory:`: one shared connection, one process, no joining ──


def test_a_memory_database_is_one_connection_that_all_clients_share() -> None:
    store = SQLiteStore(":memory:")
    assert store.clone() is store, "the heartbeat renews in the same database"
    with Once(store) as first, closing(sqlite3.connect(":memory:")) as theirs:
        second = Once(store)
        assert first.run("k", lambda: "first") == "first"
        assert second.outcome("k", lambda: "second").value == "first"
        with pytest.raises(ConfigurationError, match="cannot join your transaction"), first.within(theirs):
            pytest.fail("there is nothing to join")
        with pytest.raises(ConfigurationError, match="belongs to one process"):
            store.__reduce__()
    run(store.close())
