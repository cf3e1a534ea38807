"""Claim, effect and result in the caller's own transaction on PostgreSQL, for every kind of connection."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from onceward import AsyncOnce, Once
from onceward.errors import AlreadyRunning, ConfigurationError, LeaseLost, Reentrant, RetryTransaction, StoreUnavailable
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Complete, Release, Renewal, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from onceward.testing.conformance.harness import claim_request
from tests.cli.calls import until
from tests.integration.postgres_connections import (
    ASYNC,
    BLOCKING,
    LEVELS,
    effects,
    make_effects,
    with_psycopg,
    write,
    write_async,
    writing,
    writing_async,
)
from tests.servers.postgres import URL, Postgres, execute
from tests.servers.proxy import LOSE_REPLY, LOSE_REQUEST, Fault, Proxy

pytestmark = [pytest.mark.usefixtures("postgres")]

ACQUIRED = Verdict.ACQUIRED


class Stop(Exception):
    pass


@pytest.fixture
def store(schema: str) -> PostgresStore:
    make_effects(schema)
    return PostgresStore(os.environ[URL], schema=schema, migrate=True)


@pytest.fixture
def once(store: PostgresStore) -> Iterator[Once]:
    with Once(store, lease="10s", on_running="raise") as once:
        once.run("ready", lambda: None)  # opens the store: tables are not created in a caller's transaction
        yield once


# ── blocking, on every kind of connection ──


@pytest.mark.mission("E2")
@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("level", LEVELS)
def test_effect_and_record_commit_together_and_a_duplicate_gets_the_result(
    once: Once, schema: str, kind: str, level: str
) -> None:
    for word in ("first", "second"):
        with BLOCKING[kind](level) as connection, once.within(connection) as tx:
            assert tx.run("k", writing(connection, schema, word)) == "first"
            write(connection, schema, f"beside the {word}")  # the transaction stays usable
    assert effects(schema) == ["beside the first", "beside the second", "first"]


@pytest.mark.fault("F57")
@pytest.mark.parametrize("kind", BLOCKING)
def test_a_rollback_leaves_nothing_as_if_it_had_never_been_claimed(once: Once, schema: str, kind: str) -> None:
    with pytest.raises(Stop), BLOCKING[kind]("READ COMMITTED") as connection, once.within(connection) as tx:
        tx.run("k", writing(connection, schema, "undone"))
        raise Stop
    assert effects(schema) == []
    assert once.read("k") is None
    assert once.run("k", lambda: "again") == "again"


@pytest.mark.mission("A8")
def test_waiting_too_long_within_a_transaction_is_a_claim_error(once: Once) -> None:
    events: list[str] = []
    once.subscribe(lambda event: events.append(f"{event.name} {event.reason}"))
    owner = once.claim("k")
    contextvars.Context().run(owner.__enter__)
    patient = once.using(on_running="wait", wait="5ms")
    with BLOCKING["psycopg"]("READ COMMITTED") as connection, patient.within(connection) as tx:
        assert tx.outcome("k", int).kind == "running"
    contextvars.Context().run(owner.__exit__, None, None, None)
    assert events.count("claim_failed wait limit") == 1


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_handler_that_raises_rolls_back_its_writes_and_leaves_the_transaction_usable(
    once: Once, schema: str, kind: str
) -> None:
    with BLOCKING[kind]("READ COMMITTED") as connection, once.within(connection) as tx:

        def effect() -> None:
            write(connection, schema, "undone")
            connection.execute(wrong(kind))

        with pytest.raises(Exception, match="no_such_table"):
            tx.run("k", effect)
        write(connection, schema, "kept")
    assert effects(schema) == ["kept"]
    assert once.read("k") is None


def wrong(kind: str) -> Any:
    import sqlalchemy

    text = "SELECT * FROM no_such_table"
    return text if kind == "psycopg" else sqlalchemy.text(text)


@pytest.mark.fault("F41")
@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("level", LEVELS)
def test_complete_in_writes_the_result_with_the_effect(once: Once, schema: str, kind: str, level: str) -> None:
    with once.claim("k") as claim, BLOCKING[kind](level) as connection:
        write(connection, schema, "done")
        claim.complete_in(connection, "value")
    assert effects(schema) == ["done"]
    assert once.run("k", lambda: "not again") == "value"


@pytest.mark.rival(1)
@pytest.mark.fault("F41")
def test_complete_in_is_refused_once_another_owner_has_the_key(once: Once, schema: str) -> None:
    block = once.claim("k", lease="1s")
    claim = block.__enter__()
    execute(
        f'UPDATE "{schema}".onceward_records SET token = token + 1, nonce = %s WHERE key LIKE %s', b"another", "%k%"
    )
    with pytest.raises(LeaseLost), with_psycopg("READ COMMITTED") as connection:
        write(connection, schema, "late")
        claim.complete_in(connection, "value")
    assert effects(schema) == []
    with pytest.raises(LeaseLost):
        block.__exit__(None, None, None)


# ── on an event loop ──


@pytest.mark.mission("E2")
@pytest.mark.parametrize("kind", ASYNC)
@pytest.mark.parametrize("level", LEVELS)
async def test_effect_and_record_commit_together_on_an_event_loop(
    store: PostgresStore, schema: str, kind: str, level: str
) -> None:
    async with AsyncOnce(store, lease="10s") as once:
        await once.outcome("ready", nothing)
        for word in ("first", "second"):
            async with ASYNC[kind](level) as connection, once.within(connection) as tx:
                assert await tx.run("k", writing_async(connection, schema, word)) == "first"
                await write_async(connection, schema, f"beside the {word}")
        async with once.claim("c") as claim, ASYNC[kind](level) as connection:
            await write_async(connection, schema, "completed in")
            await claim.complete_in(connection, "value")
        assert (await once.outcome("c", nothing)).value == "value"
    assert effects(schema) == ["beside the first", "beside the second", "completed in", "first"]


@pytest.mark.fault("F57")
@pytest.mark.parametrize("kind", ASYNC)
async def test_a_rollback_on_an_event_loop_leaves_nothing(store: PostgresStore, schema: str, kind: str) -> None:
    async with AsyncOnce(store, lease="10s") as once:
        with pytest.raises(Stop):
            async with ASYNC[kind]("READ COMMITTED") as connection, once.within(connection) as tx:
                await tx.run("k", writing_async(connection, schema, "undone"))
                raise Stop
        assert await once.read("k") is None
    assert effects(schema) == []


async def nothing() -> Any:
    return None


# ── two transactions, one key ──


@pytest.mark.fault("F56")
def test_a_key_claimed_in_another_open_transaction_is_running_for_all_other_callers(
    once: Once, store: PostgresStore, schema: str
) -> None:
    with with_psycopg("READ COMMITTED") as theirs, once.within(theirs) as tx:
        tx.run("k", writing(theirs, schema, "theirs"))
        with pytest.raises(AlreadyRunning):
            once.run("k", lambda: "outside")
        hasty = Once(store.clone(), lease="15s", on_running="raise")  # waits 5 s for the other transaction
        with hasty, with_psycopg("READ COMMITTED") as mine, hasty.within(mine) as my_tx:
            with pytest.raises(AlreadyRunning):
                my_tx.run("k", lambda: "mine")
            assert mine.execute("SELECT 1").fetchone() == (1,), "it waited, timed out, and is still usable"
    assert once.run("k", writing(None, schema, "later")) == "theirs"
    assert effects(schema) == ["theirs"]


@pytest.mark.fault("F35")
def test_a_leased_call_for_the_key_of_its_own_caller_raises_reentrant_instead_of_waiting(once: Once) -> None:
    patient = once.using(on_running="wait", wait="1h")

    def again() -> None:
        patient.run("k", again)

    with with_psycopg("READ COMMITTED") as theirs, once.within(theirs) as tx, pytest.raises(Reentrant):
        tx.run("k", again)


@pytest.mark.rival(18)
@pytest.mark.fault("F56")
@pytest.mark.parametrize("level", LEVELS)
def test_a_duplicate_waits_for_the_first_and_then_gets_its_result_or_must_be_repeated(
    store: PostgresStore, schema: str, level: str
) -> None:
    with Once(store, lease="10s") as once:
        once.run("ready", lambda: None)
        claimed, seen = threading.Event(), threading.Event()
        answers: list[Any] = []

        def second() -> None:
            try:
                with with_psycopg(level) as mine, once.within(mine) as tx:
                    mine.execute("SELECT 1")  # its snapshot, where that is kept, is older than the first one's commit
                    claimed.wait(60)
                    seen.set()
                    answers.append(tx.run("k", writing(mine, schema, "second")))
            except RetryTransaction as error:
                answers.append(error)

        thread = threading.Thread(target=second)
        thread.start()
        with with_psycopg(level) as theirs, once.within(theirs) as tx:
            tx.run("k", writing(theirs, schema, "first"))
            claimed.set()
            seen.wait(60)
        thread.join(60)
        assert effects(schema) == ["first"]
        if level == "READ COMMITTED":
            assert answers == ["first"]
        else:
            assert [type(one) for one in answers] == [RetryTransaction]
        with with_psycopg(level) as again, once.within(again) as tx:
            tx.run("k", writing(again, schema, "repeated"))
        assert effects(schema) == ["first"]


@pytest.mark.fault("F31", "F57")
def test_a_connection_that_breaks_inside_the_block_leaves_the_key_free(once: Once, schema: str) -> None:
    with pytest.raises(psycopg.OperationalError), with_psycopg("READ COMMITTED") as theirs, once.within(theirs) as tx:
        tx.run("k", writing(theirs, schema, "lost"))
        execute("SELECT pg_terminate_backend(%s)", theirs.info.backend_pid)
        theirs.execute("SELECT 1")
    assert once.run("k", lambda: "free") == "free"
    assert effects(schema) == []


@pytest.mark.fault("F54")
def test_the_fate_of_a_transaction_can_be_looked_up_when_the_answer_to_its_commit_was_lost(
    once: Once, schema: str
) -> None:
    with with_psycopg("READ COMMITTED") as theirs:
        with once.within(theirs) as kept:
            kept.run("kept", writing(theirs, schema, "kept"))
        theirs.commit()
        with once.within(theirs) as undone:
            undone.run("undone", writing(theirs, schema, "undone"))
        theirs.rollback()
    assert kept.committed()
    assert not undone.committed()
    assert effects(schema) == ["kept"]


@pytest.mark.fault("F54")
@pytest.mark.parametrize(("fault", "kept"), [(LOSE_REPLY, True), (LOSE_REQUEST, False)])
def test_a_commit_without_an_answer_is_looked_up_instead_of_guessed(
    once: Once, postgres: Postgres, schema: str, fault: Fault, kept: bool
) -> None:
    with Proxy("127.0.0.1", postgres.port) as proxy:
        theirs = psycopg.connect(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")
        with once.within(theirs) as tx:
            tx.run("k", writing(theirs, schema, "effect"))
        proxy.next(fault)
        with pytest.raises(psycopg.OperationalError):
            theirs.commit()
        assert tx.committed() is kept
    assert effects(schema) == ["effect"] * kept
    assert (once.read("k") is not None) is kept


@pytest.mark.fault("F54")
@pytest.mark.parametrize(("fault", "kept"), [(LOSE_REPLY, True), (LOSE_REQUEST, False)])
def test_a_claim_completed_in_a_transaction_whose_commit_got_no_answer_ends_as_that_did(
    once: Once, postgres: Postgres, schema: str, fault: Fault, kept: bool
) -> None:
    with Proxy("127.0.0.1", postgres.port) as proxy:
        theirs = psycopg.connect(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")
        with pytest.raises(psycopg.OperationalError), once.claim("k") as claim, theirs:
            write(theirs, schema, "effect")
            claim.complete_in(theirs, "value")
            proxy.next(fault)
    assert effects(schema) == ["effect"] * kept
    entry = once.read("k")
    assert entry is not None
    assert entry.state is (RecordState.COMPLETED if kept else RecordState.FAILED), (
        "the outcome is known either way, and nothing is done twice"
    )


@pytest.mark.parametrize("before", ["never seen", "seen before"])
def test_a_key_claimed_in_an_open_transaction_does_not_block_a_batch_of_other_keys(
    once: Once, store: PostgresStore, before: str
) -> None:
    keys = [claim_request(f"k{number}", lease=60_000_000) for number in range(10)]
    if before == "seen before":  # a locked existing record takes another code path than a missing one
        free = [Release(one.record.id, one.record.token, one.record.nonce) for one in claimed(store, keys)]
        run(store.settle(free, timeout=5))
    keys = [claim_request(f"k{number}") for number in range(10)]
    with with_psycopg("READ COMMITTED") as theirs:
        joined = store.join(theirs, ThreadRuntime())
        [own] = run(joined.claim([claim_request("k5", lease=None)], timeout=5))
        assert own.verdict is Verdict.ACQUIRED
        answers = claimed(store, keys)
        theirs.rollback()
    assert [one.verdict for one in answers] == [ACQUIRED] * 5 + [Verdict.RUNNING] + [ACQUIRED] * 4
    assert claimed(store, [claim_request("k5")])[0].verdict is ACQUIRED, "a rollback sets it free"


@pytest.mark.parametrize("beside", [[], ["another"]], ids=["alone", "in a batch"])
def test_a_late_owner_gets_an_immediate_error_if_an_open_transaction_has_its_key(
    once: Once, store: PostgresStore, beside: list[str]
) -> None:
    late = [one.record for one in claimed(store, [claim_request(key, lease=1) for key in ["k", *beside]])]
    with with_psycopg("READ COMMITTED") as theirs:
        [taken] = run(store.join(theirs, ThreadRuntime()).claim([claim_request("k", lease=None)], timeout=5))
        assert taken.verdict is ACQUIRED
        renewed = run(store.renew([Renewal(one.id, one.token, one.nonce, 60_000_000) for one in late], timeout=2))
        assert [one.verdict for one in renewed] == [Verdict.RUNNING, *[Verdict.OK for _ in beside]], "not lost yet"
        ends = [Complete(one.id, one.token, one.nonce, b"late", b"late") for one in late]
        with pytest.raises(StoreUnavailable, match="another open transaction"):
            run(store.settle(ends, timeout=2))
    [answer] = run(store.settle(ends[:1], timeout=5))
    assert answer.verdict is Verdict.LOST, "it was committed: another owner has the key now"


def claimed(store: PostgresStore, requests: list[Any]) -> list[Any]:
    return run(store.claim(requests, timeout=5))


# ── what cannot be joined ──


def test_a_connection_that_commits_by_itself_is_refused(once: Once) -> None:
    with psycopg.connect(os.environ[URL], autocommit=True) as connection, once.within(connection) as tx:
        with pytest.raises(ConfigurationError, match=r"connection\.transaction"):
            tx.run("k", lambda: None)
        with connection.transaction():
            tx.run("k", lambda: None)
    entry = once.read("k")
    assert entry is not None
    assert entry.state is RecordState.COMPLETED


def test_a_connection_to_another_database_is_refused(once: Once) -> None:
    with (
        psycopg.connect(os.environ[URL], dbname="template1") as connection,
        once.within(connection) as tx,
        pytest.raises(ConfigurationError, match="another database"),
    ):
        tx.run("k", lambda: None)


def test_an_object_that_is_not_a_connection_is_refused(once: Once) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot join a builtins\.str"), once.within("no connection"):
        pass


# ── in the wrong order ──


def test_a_transaction_that_outlives_its_claim_is_refused_and_frees_its_key_when_it_ends(
    once: Once, schema: str
) -> None:
    with psycopg.connect(os.environ[URL]) as connection:
        with (
            pytest.raises(ConfigurationError, match=r"with once\.claim\(key\) as claim, connection\.transaction\(\):"),
            connection.transaction(),
            once.claim("order:8") as claim,
        ):
            claim.complete_in(connection, "receipt")
        until(lambda: (entry := once.read("order:8")) is not None and entry.state is RecordState.FAILED)
        assert not connection.closed
    assert once.run("order:8", lambda: "in the right order") == "in the right order"
