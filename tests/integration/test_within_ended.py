"""A handler that ends the caller's transaction: it gets an error, and its record says what became of its work."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onceward import Once
from onceward.errors import AlreadyRunning, ClaimError, OutcomeParked
from onceward.protocol.record import RecordState
from tests.clients import SyncClient
from tests.integration.joined_block import Write, always_open, connection, rows, since_3_12, within, write

__all__ = ["always_open", "connection", "write"]  # fixtures, re-exported so that pytest finds them


@pytest.mark.mission("A1")
def test_a_handler_that_commits_and_returns_raises_and_its_work_is_recorded_as_done(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write
) -> None:
    def commits() -> str:
        write("done")
        connection.commit()
        return "value"

    raises = pytest.raises(ClaimError, match="do not commit or roll back inside the handler")
    with raises, connection, within(sqlite_client, connection) as tx:
        tx.run("k", commits)
    entry = sqlite_client.read("k")
    assert entry.state is RecordState.COMPLETED
    assert sqlite_client.run("k", commits) == "value", "it is not done again"
    assert rows(sqlite_client) == ["done"]
    assert len(sqlite_client.events_named("completed")) == 1


@pytest.mark.mission("A1")
def test_a_handler_that_commits_and_raises_is_parked_and_its_exception_is_the_cause(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write
) -> None:
    def commits() -> None:
        write("half")
        connection.commit()
        raise ValueError("and then it broke")

    with pytest.raises(ClaimError, match="do not commit") as caught, within(sqlite_client, connection) as tx:
        tx.run("k", commits)
    assert isinstance(caught.value.__cause__, ValueError)
    assert sqlite_client.read("k").state is RecordState.PARKED
    with pytest.raises(OutcomeParked):
        sqlite_client.run("k", commits)
    assert rows(sqlite_client) == ["half"]
    assert not sqlite_client.events_named("completed")


def test_a_handler_that_commits_and_continues_writing_is_parked_and_its_later_writes_are_undone(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write
) -> None:
    def commits() -> str:
        write("first half")
        connection.commit()
        write("second half")
        return "value"

    with pytest.raises(ClaimError, match="do not commit"), within(sqlite_client, connection) as tx:
        tx.run("k", commits)
    assert not connection.in_transaction
    assert sqlite_client.read("k").state is RecordState.PARKED
    assert rows(sqlite_client) == ["first half"]


@pytest.mark.parametrize("then", ["returns", "raises", "writes"])
def test_a_handler_that_rolls_back_leaves_nothing_but_the_error(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write, then: str
) -> None:
    def rolls_back() -> None:
        write("gone")
        connection.rollback()
        if then == "raises":
            raise ValueError
        if then == "writes":
            write("after it")

    raises = pytest.raises(ClaimError, match="or roll back inside the handler")
    with raises as caught, connection, within(sqlite_client, connection) as tx:
        tx.run("k", rolls_back)
    assert isinstance(caught.value.__cause__, ValueError) is (then == "raises")
    assert sqlite_client.read("k") is None
    assert rows(sqlite_client) == []
    assert sqlite_client.run("k", lambda: "free") == "free"


@pytest.mark.parametrize("then", ["returns", "raises", "committed"])
def test_a_handler_that_closes_the_connection_gets_an_error(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write, then: str
) -> None:
    def closes() -> str:
        write("written")
        if then == "committed":
            connection.commit()
        connection.close()
        if then == "raises":
            raise ValueError
        return "value"

    raises = pytest.raises(ClaimError, match="was ended inside the handler")
    with raises as caught, within(sqlite_client, connection) as tx:
        tx.run("k", closes)
    assert isinstance(caught.value.__cause__, ValueError) is (then == "raises")
    assert rows(sqlite_client) == (["written"] if then == "committed" else [])
    if then == "committed":
        assert sqlite_client.read("k").state is RecordState.COMPLETED
    else:
        assert sqlite_client.run("k", lambda: "free") == "free"


def test_the_record_of_an_earlier_attempt_survives_a_handler_that_rolls_back(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    fails = [True]

    def work() -> None:
        if fails:
            raise ValueError(fails.pop())
        connection.rollback()

    with pytest.raises(ValueError, match="True"):
        sqlite_client.run("k", work)
    sqlite_client.clock.advance("1d")
    with pytest.raises(ClaimError, match="nothing of it was committed"), within(sqlite_client, connection) as tx:
        tx.run("k", work)
    entry = sqlite_client.read("k")
    assert (entry.state, entry.attempt) == (RecordState.FAILED, 1)


@pytest.mark.parametrize(("fails", "state"), [(False, RecordState.COMPLETED), (True, RecordState.PARKED)])
def test_a_handler_that_ends_an_outer_savepoint_leaves_no_pending_claim(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write, fails: bool, state: RecordState
) -> None:
    def releases() -> None:
        write("its own")
        connection.execute("RELEASE around")
        if fails:
            raise ValueError

    connection.execute("BEGIN IMMEDIATE")
    write("mine")
    connection.execute("SAVEPOINT around")
    with pytest.raises(ClaimError, match="nothing of it was committed"), within(sqlite_client, connection) as tx:
        tx.run("k", releases)
    assert connection.in_transaction, "the transaction is its caller's"
    connection.commit()
    assert rows(sqlite_client) == ["mine", "its own"]
    assert sqlite_client.read("k").state is state, "its record says what became of its writes"


class Interrupt(BaseException):
    pass


def test_an_interrupt_after_a_commit_propagates_and_the_claim_is_parked(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path / 'once.db'}") as once, closing(sqlite3.connect(tmp_path / "once.db")) as theirs:
        once.read("open the store")

        def interrupted() -> None:
            theirs.commit()
            raise Interrupt

        with pytest.raises(Interrupt) as caught, once.within(theirs) as tx:
            tx.run("k", interrupted)
        assert "do not commit" in caught.value.__notes__[0]
        entry = once.read("k")
        assert entry is not None
        assert entry.state is RecordState.PARKED


# ── claimed without a lease ──


def test_a_claim_without_a_lease_is_reported_as_such(
    sqlite_client: SyncClient, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill right after the handler's own commit: no owner is left to settle it."""
    monkeypatch.setattr("onceward.engine.within.JoinedJob._settle_ended", _killed)

    def commits() -> None:
        connection.commit()

    with pytest.raises(ClaimError), within(sqlite_client, connection) as tx:
        tx.run("k", commits)
    outcome = sqlite_client.another(on_running="raise").outcome("k", commits)
    assert outcome.retry_after is None
    with pytest.raises(AlreadyRunning, match="holds it without a lease") as caught:
        outcome.unwrap()
    assert caught.value.retry_after is None
    late = sqlite_client.another(wait="20ms").outcome("k", commits)
    assert late.waited
    with pytest.raises(AlreadyRunning, match="was not forgotten"):
        sqlite_client.forget("k")
    assert sqlite_client.forget("k", force=True)


async def _killed(_: object) -> str:
    return "killed"


# ── autocommit=False: the end of a transaction is the beginning of the next ──


@since_3_12
def test_with_autocommit_off_a_handler_that_commits_raises_and_no_claim_stays_locked(
    sqlite_client: SyncClient, always_open: sqlite3.Connection
) -> None:
    def commits() -> None:
        always_open.execute("INSERT INTO effects VALUES ('half')")
        always_open.commit()
        always_open.execute("INSERT INTO effects VALUES ('undone')")

    with pytest.raises(ClaimError, match="do not commit"), always_open, within(sqlite_client, always_open) as tx:
        tx.run("k", commits)
    assert sqlite_client.read("k").state is RecordState.PARKED
    assert rows(sqlite_client) == ["half"]
