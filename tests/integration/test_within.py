"""A handler inside the caller's transaction that does what it should not: end it, overlap, or wait for too long."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, ClaimError, ConfigurationError, Once
from onceward.errors import AlreadyRunning, OutcomeParked, Reentrant, StoreUnavailable
from onceward.model.record import State
from tests.faces import Face
from tests.integration.joined_block import rows, users_connection, within


@pytest.fixture
def connection(sqlite_face: Face) -> Iterator[sqlite3.Connection]:
    theirs = users_connection(sqlite_face)
    yield theirs
    theirs.close()


@pytest.fixture
def write(connection: sqlite3.Connection) -> Callable[[str], None]:
    def write(word: str) -> None:
        connection.execute("INSERT INTO effects VALUES (?)", (word,))

    return write


Write = Callable[[str], None]

# ── the handler ends the transaction ──


@pytest.mark.mission("A1")
def test_a_handler_that_commits_and_returns_is_told_off_and_its_work_is_recorded_as_done(
    sqlite_face: Face, connection: sqlite3.Connection, write: Write
) -> None:
    def commits() -> str:
        write("done")
        connection.commit()
        return "value"

    told = pytest.raises(ClaimError, match="do not commit or roll back inside the handler")
    with told, connection, within(sqlite_face, connection) as tx:
        tx.run("k", commits)
    entry = sqlite_face.read("k")
    assert entry.state is State.COMPLETED
    assert sqlite_face.run("k", commits) == "value", "it is not done again"
    assert rows(sqlite_face) == ["done"]
    assert len(sqlite_face.told("completed")) == 1


@pytest.mark.mission("A1")
def test_a_handler_that_commits_and_raises_is_parked_and_its_exception_is_the_cause(
    sqlite_face: Face, connection: sqlite3.Connection, write: Write
) -> None:
    def commits() -> None:
        write("half")
        connection.commit()
        raise ValueError("and then it broke")

    with pytest.raises(ClaimError, match="do not commit") as caught, within(sqlite_face, connection) as tx:
        tx.run("k", commits)
    assert isinstance(caught.value.__cause__, ValueError)
    assert sqlite_face.read("k").state is State.PARKED
    with pytest.raises(OutcomeParked):
        sqlite_face.run("k", commits)
    assert rows(sqlite_face) == ["half"]
    assert not sqlite_face.told("completed")


def test_a_handler_that_commits_and_goes_on_writing_is_parked_and_what_it_wrote_since_is_undone(
    sqlite_face: Face, connection: sqlite3.Connection, write: Write
) -> None:
    def commits() -> str:
        write("first half")
        connection.commit()
        write("second half")
        return "value"

    with pytest.raises(ClaimError, match="do not commit"), within(sqlite_face, connection) as tx:
        tx.run("k", commits)
    assert not connection.in_transaction
    assert sqlite_face.read("k").state is State.PARKED
    assert rows(sqlite_face) == ["first half"]


@pytest.mark.parametrize("then", ["returns", "raises", "writes"])
def test_a_handler_that_rolls_back_leaves_nothing_but_the_error(
    sqlite_face: Face, connection: sqlite3.Connection, write: Write, then: str
) -> None:
    def rolls_back() -> None:
        write("gone")
        connection.rollback()
        if then == "raises":
            raise ValueError
        if then == "writes":
            write("after it")

    told = pytest.raises(ClaimError, match="or roll back inside the handler")
    with told as caught, connection, within(sqlite_face, connection) as tx:
        tx.run("k", rolls_back)
    assert isinstance(caught.value.__cause__, ValueError) is (then == "raises")
    assert sqlite_face.read("k") is None
    assert rows(sqlite_face) == []
    assert sqlite_face.run("k", lambda: "free") == "free"


@pytest.mark.parametrize("then", ["returns", "raises", "committed"])
def test_a_handler_that_closes_the_connection_is_told_so(
    sqlite_face: Face, connection: sqlite3.Connection, write: Write, then: str
) -> None:
    def closes() -> str:
        write("written")
        if then == "committed":
            connection.commit()
        connection.close()
        if then == "raises":
            raise ValueError
        return "value"

    told = pytest.raises(ClaimError, match="was ended inside the handler")
    with told as caught, within(sqlite_face, connection) as tx:
        tx.run("k", closes)
    assert isinstance(caught.value.__cause__, ValueError) is (then == "raises")
    assert rows(sqlite_face) == (["written"] if then == "committed" else [])
    if then == "committed":
        assert sqlite_face.read("k").state is State.COMPLETED
    else:
        assert sqlite_face.run("k", lambda: "free") == "free"


def test_what_was_recorded_before_a_handler_rolled_back_is_recorded_still(
    sqlite_face: Face, connection: sqlite3.Connection
) -> None:
    fails = [True]

    def work() -> None:
        if fails:
            raise ValueError(fails.pop())
        connection.rollback()

    with pytest.raises(ValueError, match="True"):
        sqlite_face.run("k", work)
    sqlite_face.clock.advance("1d")
    with pytest.raises(ClaimError, match="nothing of it was committed"), within(sqlite_face, connection) as tx:
        tx.run("k", work)
    entry = sqlite_face.read("k")
    assert (entry.state, entry.attempt) == (State.FAILED, 1)


@pytest.mark.parametrize(("fails", "state"), [(False, State.COMPLETED), (True, State.PARKED)])
def test_a_handler_that_ends_a_savepoint_around_it_leaves_no_claim_that_is_held(
    sqlite_face: Face, connection: sqlite3.Connection, write: Write, fails: bool, state: State
) -> None:
    def releases() -> None:
        write("its own")
        connection.execute("RELEASE around")
        if fails:
            raise ValueError

    connection.execute("BEGIN IMMEDIATE")
    write("mine")
    connection.execute("SAVEPOINT around")
    with pytest.raises(ClaimError, match="nothing of it was committed"), within(sqlite_face, connection) as tx:
        tx.run("k", releases)
    assert connection.in_transaction, "the transaction is its caller's"
    connection.commit()
    assert rows(sqlite_face) == ["mine", "its own"]
    assert sqlite_face.read("k").state is state, "its record tells of what it wrote"


class Interrupt(BaseException):
    pass


def test_an_interrupt_after_a_commit_is_kept_itself_and_the_claim_is_parked(tmp_path: Path) -> None:
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
        assert entry.state is State.PARKED


def test_a_handler_that_raises_takes_its_own_writes_along_and_leaves_the_transaction_usable(
    sqlite_face: Face, connection: sqlite3.Connection, write: Write
) -> None:
    def fails() -> None:
        write("undone")
        raise ValueError("no")

    with connection, within(sqlite_face, connection) as tx:
        write("before")
        failed = tx.outcome("a", fails)
        assert isinstance(failed.exception, ValueError)
        tx.run("b", write, "kept")
    assert rows(sqlite_face) == ["before", "kept"]
    assert sqlite_face.read("a") is None


# ── held without a lease ──


def test_a_claim_without_a_lease_is_said_to_be_one(
    sqlite_face: Face, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill right behind the handler's own commit: nobody is left to settle it."""
    monkeypatch.setattr("onceward.core.within.JoinedJob._settle_ended", _killed)

    def commits() -> None:
        connection.commit()

    with pytest.raises(ClaimError), within(sqlite_face, connection) as tx:
        tx.run("k", commits)
    outcome = sqlite_face.another(on_running="raise").outcome("k", commits)
    assert outcome.retry_after is None
    with pytest.raises(AlreadyRunning, match="held without a lease") as caught:
        outcome.unwrap()
    assert caught.value.retry_after is None
    late = sqlite_face.another(wait="20ms").outcome("k", commits)
    assert late.waited
    with pytest.raises(AlreadyRunning, match="was not forgotten"):
        sqlite_face.forget("k")
    assert sqlite_face.forget("k", force=True)


async def _killed(_: object) -> str:
    return "killed"


# ── the end of the block ──


def test_a_block_whose_caller_has_committed_inside_leaves_no_transaction_open(
    sqlite_face: Face, connection: sqlite3.Connection, write: Write
) -> None:
    sqlite_face.silent_owner("held", lease="3s")
    with within(sqlite_face, connection) as tx:
        tx.run("k", write, "done")
        sqlite_face.clock.advance("2s")
        connection.commit()
    assert not connection.in_transaction


def test_a_connection_that_is_closed_before_the_block_ends_has_no_open_transaction(
    sqlite_face: Face, connection: sqlite3.Connection, write: Write
) -> None:
    sqlite_face.silent_owner("held", lease="3s")
    with within(sqlite_face, connection) as tx:
        tx.run("k", write, "done")
        sqlite_face.clock.advance("2s")
        connection.commit()
        connection.close()
    assert rows(sqlite_face) == ["done"]


def test_a_connection_that_is_closed_before_its_claim_ends_has_committed_its_result(sqlite_face: Face) -> None:
    with sqlite_face.claim("k") as claim, closing(users_connection(sqlite_face)) as theirs, theirs:
        claim.complete_in(theirs, "value")
    assert sqlite_face.read("k").state is State.COMPLETED


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
def test_two_jobs_at_once_in_one_transaction_are_refused_before_the_second_begins(tmp_path: Path, slow: str) -> None:
    answers, words, records = asyncio.run(_gathered(tmp_path / "once.db", slow))
    assert isinstance(answers[0], ValueError)
    assert isinstance(answers[1], ConfigurationError)
    assert "one job at a time" in str(answers[1])
    assert words == []
    assert records == [None, None]


def test_two_jobs_at_once_inside_of_a_third_are_refused_too(tmp_path: Path) -> None:
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
    sqlite_face: Face, connection: sqlite3.Connection, write: Write
) -> None:
    with connection, within(sqlite_face, connection) as tx:

        def outer() -> str:
            tx.run("inner", write, "inner")
            write("outer")
            return "both"

        assert tx.run("outer", outer) == "both"
        tx.run("next", write, "next")
    assert rows(sqlite_face) == ["inner", "outer", "next"]


# ── waiting ──


@pytest.mark.fault("F35")
def test_a_job_that_asks_for_its_own_key_again_is_told_so_at_once(
    sqlite_face: Face, connection: sqlite3.Connection
) -> None:
    with connection, within(sqlite_face, connection) as tx:

        def again() -> None:
            tx.run("k", again)

        with pytest.raises(Reentrant):
            tx.run("k", again)
    assert sqlite_face.read("k") is None


def test_the_transaction_waits_for_another_writer_no_longer_than_the_job_allows(
    sqlite_face: Face, connection: sqlite3.Connection
) -> None:
    hasty = sqlite_face.another(lease="1s")
    allowed = hasty.once.policy.call_timeout
    with closing(sqlite3.connect(sqlite_face.place.path, isolation_level=None)) as writer:
        users_connection(hasty).close()
        writer.execute("BEGIN IMMEDIATE")
        since = time.monotonic()
        with pytest.raises(StoreUnavailable, match="another writer"), within(hasty, connection) as tx:
            tx.run("k", lambda: None)
        assert time.monotonic() - since < allowed + 1
        writer.execute("ROLLBACK")


# ── autocommit=False: the end of a transaction is the begin of the next ──


since_3_12 = pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with Python 3.12")


@pytest.fixture
def always_open(sqlite_face: Face) -> Iterator[sqlite3.Connection]:
    users_connection(sqlite_face).close()
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    theirs = connect(sqlite_face.place.path, check_same_thread=False, autocommit=False)
    yield theirs
    theirs.close()


@since_3_12
def test_with_autocommit_off_what_complete_in_wrote_is_found_committed(
    sqlite_face: Face, always_open: sqlite3.Connection
) -> None:
    with sqlite_face.claim("k") as claim, always_open:
        always_open.execute("INSERT INTO effects VALUES ('done')")
        claim.complete_in(always_open, "value")
    assert sqlite_face.read("k").state is State.COMPLETED
    assert len(sqlite_face.told("completed")) == 1


@since_3_12
def test_with_autocommit_off_a_block_whose_caller_has_committed_inside_leaves_no_lock(
    sqlite_face: Face, always_open: sqlite3.Connection
) -> None:
    sqlite_face.silent_owner("held", lease="3s")
    with within(sqlite_face, always_open) as tx:
        tx.run("k", lambda: None)
        sqlite_face.clock.advance("2s")
        always_open.commit()
    assert sqlite_face.another(lease="1s").run("next", lambda: "claimed") == "claimed"


@since_3_12
def test_with_autocommit_off_a_handler_that_commits_is_told_off_and_nothing_is_held_for_ever(
    sqlite_face: Face, always_open: sqlite3.Connection
) -> None:
    def commits() -> None:
        always_open.execute("INSERT INTO effects VALUES ('half')")
        always_open.commit()
        always_open.execute("INSERT INTO effects VALUES ('undone')")

    with pytest.raises(ClaimError, match="do not commit"), always_open, within(sqlite_face, always_open) as tx:
        tx.run("k", commits)
    assert sqlite_face.read("k").state is State.PARKED
    assert rows(sqlite_face) == ["half"]


@since_3_12
def test_with_autocommit_off_a_savepoint_that_the_caller_sets_between_two_jobs_is_theirs(
    sqlite_face: Face, always_open: sqlite3.Connection
) -> None:
    def write(word: str) -> None:
        always_open.execute("INSERT INTO effects VALUES (?)", (word,))

    with always_open, within(sqlite_face, always_open) as tx:
        tx.run("kept", write, "kept")
        always_open.execute("SAVEPOINT theirs")
        write("undone")
        tx.run("undone", write, "undone, too")
        always_open.execute("ROLLBACK TO theirs")
        tx.run("last", write, "last")
        always_open.execute("RELEASE theirs")
    assert rows(sqlite_face) == ["kept", "last"]
    assert [sqlite_face.read(key).state for key in ("kept", "last")] == [State.COMPLETED, State.COMPLETED]
    assert sqlite_face.run("undone", lambda: "free") == "free"
