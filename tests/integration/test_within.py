"""Jobs inside the caller's transaction: how it ends, one job at a time, and how long jobs wait for other writers."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError
from onceward.errors import Reentrant, StoreUnavailable
from onceward.protocol.record import RecordState
from tests.clients import SyncClient
from tests.integration.joined_block import (
    Write,
    always_open,
    connection,
    rows,
    since_3_12,
    users_connection,
    within,
    write,
)

__all__ = ["always_open", "connection", "write"]  # fixtures, re-exported so that pytest finds them


def test_a_handler_that_raises_rolls_back_its_own_writes_and_leaves_the_transaction_usable(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write
) -> None:
    def fails() -> None:
        write("undone")
        raise ValueError("no")

    with connection, within(sqlite_client, connection) as tx:
        write("before")
        failed = tx.outcome("a", fails)
        assert isinstance(failed.exception, ValueError)
        tx.run("b", write, "kept")
    assert rows(sqlite_client) == ["before", "kept"]
    assert sqlite_client.read("a") is None


def test_a_stop_iteration_of_a_handler_stays_one(sqlite_client: SyncClient, connection: sqlite3.Connection) -> None:
    if sqlite_client.mode == "async":
        pytest.skip("Python makes it a RuntimeError in every coroutine")
    with connection, within(sqlite_client, connection) as tx:
        assert isinstance(tx.outcome("k", lambda: next(iter([]))).exception, StopIteration)
        with pytest.raises(StopIteration):
            tx.run("k", lambda: next(iter([])))
    assert sqlite_client.read("k") is None


# ── the end of the block ──


def test_a_block_whose_caller_has_committed_inside_leaves_no_transaction_open(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write
) -> None:
    sqlite_client.silent_owner("held", lease="3s")
    with within(sqlite_client, connection) as tx:
        tx.run("k", write, "done")
        sqlite_client.clock.advance("2s")
        connection.commit()
    assert not connection.in_transaction


def test_a_connection_that_is_closed_before_the_block_ends_has_no_open_transaction(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write
) -> None:
    sqlite_client.silent_owner("held", lease="3s")
    with within(sqlite_client, connection) as tx:
        tx.run("k", write, "done")
        sqlite_client.clock.advance("2s")
        connection.commit()
        connection.close()
    assert rows(sqlite_client) == ["done"]


def test_a_connection_that_is_closed_before_its_claim_ends_has_committed_its_result(sqlite_client: SyncClient) -> None:
    with sqlite_client.claim("k") as claim, closing(users_connection(sqlite_client)) as theirs, theirs:
        claim.complete_in(theirs, "value")
    assert sqlite_client.read("k").state is RecordState.COMPLETED


# ── one at a time ──


async def _gathered(path: Path, slow: str) -> tuple[list[Any], list[str], list[Any]]:
    async with AsyncOnce(f"sqlite:///{path}") as once:
        await once.read("open the store")
        with closing(sqlite3.connect(path)) as theirs:
            theirs.execute("CREATE TABLE effects (word TEXT)")

            async def work(word: str) -> str:
                theirs.execute("INSERT INTO effects VALUES (?)", (word,))
                await asyncio.sleep(0.02 if word == slow else 0.005)
                if word == "bad":
                    raise ValueError(word)
                return word

            async with once.within(theirs) as tx:
                both = (tx.run(word, work, word) for word in ("bad", "good"))
                answers = await asyncio.gather(*both, return_exceptions=True)
            theirs.commit()
            words = [word for (word,) in theirs.execute("SELECT word FROM effects")]
        return answers, words, [await once.read("bad"), await once.read("good")]


@pytest.mark.mission("A1")
@pytest.mark.parametrize("slow", ["good", "bad"])
def test_two_concurrent_jobs_in_one_transaction_are_refused_before_the_second_begins(tmp_path: Path, slow: str) -> None:
    answers, words, records = asyncio.run(_gathered(tmp_path / "once.db", slow))
    assert isinstance(answers[0], ValueError)
    assert isinstance(answers[1], ConfigurationError)
    assert "one job at a time" in str(answers[1])
    assert words == []
    assert records == [None, None]


def test_two_concurrent_jobs_inside_of_a_third_are_refused_too(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        async with AsyncOnce(f"sqlite:///{tmp_path / 'once.db'}") as once:
            await once.read("open the store")
            with closing(sqlite3.connect(tmp_path / "once.db")) as theirs:
                async with once.within(theirs) as tx:

                    async def inner(word: str) -> str:
                        await asyncio.sleep(0.005)
                        return word

                    async def outer() -> list[str]:
                        both = await asyncio.gather(
                            tx.run("a", inner, "a"), tx.run("b", inner, "b"), return_exceptions=True
                        )
                        return [one if isinstance(one, str) else type(one).__name__ for one in both]

                    return await tx.run("outer", outer)

    assert asyncio.run(main()) == ["a", "ConfigurationError"]


def test_a_job_may_do_another_one_within_itself(
    sqlite_client: SyncClient, connection: sqlite3.Connection, write: Write
) -> None:
    with connection, within(sqlite_client, connection) as tx:

        def outer() -> str:
            tx.run("inner", write, "inner")
            write("outer")
            return "both"

        assert tx.run("outer", outer) == "both"
        tx.run("next", write, "next")
    assert rows(sqlite_client) == ["inner", "outer", "next"]


# ── waiting ──


@pytest.mark.fault("F35")
def test_a_job_that_asks_for_its_own_key_again_gets_an_immediate_error(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    with connection, within(sqlite_client, connection) as tx:

        def again() -> None:
            tx.run("k", again)

        with pytest.raises(Reentrant):
            tx.run("k", again)
    assert sqlite_client.read("k") is None


def test_the_transaction_waits_for_another_writer_no_longer_than_the_job_allows(
    sqlite_client: SyncClient, connection: sqlite3.Connection
) -> None:
    hasty = sqlite_client.another(lease="1s")
    allowed = hasty.once.policy.call_timeout
    with closing(sqlite3.connect(sqlite_client.backend.path, isolation_level=None)) as writer:
        users_connection(hasty).close()
        writer.execute("BEGIN IMMEDIATE")
        since = time.monotonic()
        with pytest.raises(StoreUnavailable, match="another writer"), within(hasty, connection) as tx:
            tx.run("k", lambda: None)
        assert time.monotonic() - since < allowed + 4
        writer.execute("ROLLBACK")


# ── autocommit=False: the end of a transaction is the beginning of the next ──


@since_3_12
def test_with_autocommit_off_what_complete_in_wrote_is_found_committed(
    sqlite_client: SyncClient, always_open: sqlite3.Connection
) -> None:
    with sqlite_client.claim("k") as claim, always_open:
        always_open.execute("INSERT INTO effects VALUES ('done')")
        claim.complete_in(always_open, "value")
    assert sqlite_client.read("k").state is RecordState.COMPLETED
    assert len(sqlite_client.events_named("completed")) == 1


@since_3_12
def test_with_autocommit_off_a_block_whose_caller_has_committed_inside_leaves_no_lock(
    sqlite_client: SyncClient, always_open: sqlite3.Connection
) -> None:
    sqlite_client.silent_owner("held", lease="3s")
    with within(sqlite_client, always_open) as tx:
        tx.run("k", lambda: None)
        sqlite_client.clock.advance("2s")
        always_open.commit()
    assert sqlite_client.another(lease="1s").run("next", lambda: "claimed") == "claimed"


@since_3_12
def test_with_autocommit_off_a_savepoint_that_the_caller_sets_between_two_jobs_is_theirs(
    sqlite_client: SyncClient, always_open: sqlite3.Connection
) -> None:
    def write(word: str) -> None:
        always_open.execute("INSERT INTO effects VALUES (?)", (word,))

    with always_open, within(sqlite_client, always_open) as tx:
        tx.run("kept", write, "kept")
        always_open.execute("SAVEPOINT theirs")
        write("undone")
        tx.run("undone", write, "undone, too")
        always_open.execute("ROLLBACK TO theirs")
        tx.run("last", write, "last")
        always_open.execute("RELEASE theirs")
    assert rows(sqlite_client) == ["kept", "last"]
    assert [sqlite_client.read(key).state for key in ("kept", "last")] == [RecordState.COMPLETED, RecordState.COMPLETED]
    assert sqlite_client.run("undone", lambda: "free") == "free"
