"""Changes by others to a record while a batch of completions is running on PostgreSQL.

The statement is paused after it has found the first of its records, before it writes to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from onceward.errors import StoreUnavailable
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, Complete, Renewal, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.pool import SESSION_SETTINGS
from onceward.stores.postgres.statements import Statement, Statements
from onceward.stores.postgres.table import PostgresTable
from onceward.testing.conformance.harness import claim_request
from tests.integration.postgres_backend import store
from tests.raw_postgres import use_table
from tests.servers.postgres import URL, execute
from tests.unit.batcher_calls import until

__all__ = ["store"]  # fixture, re-exported so that pytest finds it

LONG = 60_000_000  # µs
GATE, ARRIVED = 4711, 4712  # advisory locks
PATIENCE = 30.0  # seconds: no call here may need that long

CompleteWhile = Callable[[Callable[[], None]], list[Answer]]


@pytest.fixture
def claimed(store: PostgresStore) -> list[Record]:
    """Records of a late owner, which any worker may take over. In the order in which a batch finds them."""
    answers = run(store.claim([claim_request(key, lease=1) for key in "abc"], timeout=5))
    return sorted((one.record for one in answers if one.record is not None), key=lambda one: one.id)


@pytest.fixture
def complete_while(store: PostgresStore, schema: str, claimed: list[Record]) -> Iterator[CompleteWhile]:
    """Return a function that completes all records and calls `meanwhile` after the first was found."""
    execute(
        f'CREATE OR REPLACE FUNCTION "{schema}".through_the_gate() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN'
        f" PERFORM pg_advisory_xact_lock_shared({ARRIVED});"
        f" WHILE NOT pg_try_advisory_xact_lock_shared({GATE}) LOOP PERFORM pg_sleep(0.001); END LOOP;"
        " RETURN false; END $$"
    )
    pausing = Statements(schema)
    text = pausing.complete.text
    assert "final = NULL" in text
    pausing.complete = Statement(text.replace("final = NULL", f'final = "{schema}".through_the_gate()'))
    use_table(store, PostgresTable, lambda _: pausing)
    completions = [Complete(one.id, one.token, one.nonce, b"done", b"done") for one in claimed]
    with ThreadPoolExecutor(1) as pool:

        def completed(meanwhile: Callable[[], None]) -> list[Answer]:
            with closed_gate():
                answers: Future[list[Answer]] = pool.submit(run, store.settle(completions, timeout=PATIENCE))
                until(lambda: answers.done() or statement_is_waiting())
                meanwhile()
            return answers.result(PATIENCE)

        yield completed


@contextmanager
def closed_gate() -> Iterator[None]:
    with psycopg.connect(os.environ[URL], autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (GATE,))
        yield


def statement_is_waiting() -> bool:
    return bool(execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s", ARRIVED))


def states(store: PostgresStore, claimed: list[Record]) -> list[RecordState | None]:
    answers = run(store.read([one.id for one in claimed], timeout=5))
    return [None if one.record is None else one.record.state for one in answers]


@pytest.mark.parametrize("which", [0, 2], ids=["the one that was found", "one that comes later"])
def test_an_open_transaction_that_takes_over_one_record_blocks_no_other(
    store: PostgresStore, claimed: list[Record], complete_while: CompleteWhile, which: int
) -> None:
    with psycopg.connect(os.environ[URL]) as theirs:

        def take_over() -> None:
            joined = store.join(theirs, ThreadRuntime())
            [taken] = run(joined.claim([claim_request(claimed[which].key, lease=None)], timeout=5))
            assert taken.verdict is Verdict.ACQUIRED

        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match="another open transaction"):
            complete_while(take_over)
        assert time.monotonic() - begun < PATIENCE / 2
        expected = [RecordState.COMPLETED] * 3
        expected[which] = RecordState.PENDING
        assert states(store, claimed) == expected


def test_a_record_that_is_renewed_meanwhile_is_completed(
    store: PostgresStore, claimed: list[Record], complete_while: CompleteWhile
) -> None:
    first = claimed[0]

    def renew() -> None:
        [renewed] = run(store.renew([Renewal(first.id, first.token, first.nonce, LONG, {"step": "two"})], timeout=5))
        assert renewed.verdict is Verdict.OK

    assert [one.verdict for one in complete_while(renew)] == [Verdict.OK] * 3
    assert states(store, claimed) == [RecordState.COMPLETED] * 3
    [kept] = run(store.read([first.id], timeout=5))
    assert kept.record is not None
    assert kept.record.note == {"step": "two"}
    assert kept.record.renewed_at > first.renewed_at


def test_a_record_that_is_taken_over_meanwhile_stays_with_its_new_owner(
    store: PostgresStore, claimed: list[Record], complete_while: CompleteWhile
) -> None:
    first = claimed[0]

    def take_over() -> None:
        [taken] = run(store.claim([claim_request(first.key, lease=LONG)], timeout=5))
        assert taken.verdict is Verdict.ACQUIRED

    assert [one.verdict for one in complete_while(take_over)] == [Verdict.LOST, Verdict.OK, Verdict.OK]
    [kept] = run(store.read([first.id], timeout=5))
    assert kept.record is not None
    assert (kept.record.state, kept.record.attempt) == (RecordState.PENDING, 2)


@pytest.mark.parametrize("name", ["claim", "complete"])
def test_a_batch_finds_each_record_by_its_key_even_if_its_plan_was_made_for_an_empty_table(
    store: PostgresStore, schema: str, name: str
) -> None:
    """There may be very many pending records, and very many dead entries of them in an index."""
    statement: Statement = getattr(Statements(schema), name)
    with psycopg.connect(os.environ[URL], autocommit=True) as other:
        other.execute(f'VACUUM ANALYZE "{schema}".onceward_records')
        other.execute("; ".join(SESSION_SETTINGS))
        other.execute(f"PREPARE batch AS {statement.text}".encode())
        given = ", ".join("NULL" for _ in statement.encoders)
        plan = "\n".join(line for (line,) in other.execute(f"EXPLAIN EXECUTE batch ({given})".encode()))
    assert "onceward_records_pkey" in plan
    assert not [way for way in ("onceward_unfinished", "Seq Scan", "Hash Join", "Merge Join") if way in plan], plan
