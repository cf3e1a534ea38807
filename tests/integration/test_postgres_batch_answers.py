"""Batches on PostgreSQL: rows that a statement does not return were written, the state table decides the others."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from onceward.errors import StoreUnavailable
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, AnyRequest, Complete, Release, Renewal, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from tests.servers.postgres import URL
from tests.unit.batcher_calls import request

TIMEOUT = 30.0


@pytest.fixture
def store(schema: str) -> Iterator[PostgresStore]:
    store = PostgresStore(os.environ[URL], schema=schema, migrate=True)
    run(store.open(ThreadRuntime()))
    yield store
    run(store.close())


def sent(store: PostgresStore, *requests: AnyRequest) -> list[Answer]:
    return run(store.send(requests, TIMEOUT))


def claimed(store: PostgresStore, *words: str) -> list[Record]:
    answers = sent(store, *(request(word, word.encode()) for word in words))
    assert [one.verdict for one in answers] == [Verdict.ACQUIRED] * len(words)
    return [one.record for one in answers if one.record is not None]


def completion(record: Record) -> Complete:
    return Complete(record.id, record.token, record.nonce, result=f"{record.key} is done".encode())


def stored(store: PostgresStore, *records: Record) -> list[Record | None]:
    return [one.record for one in run(store.read([one.id for one in records], timeout=TIMEOUT))]


@pytest.mark.rival(13)
def test_each_completion_of_a_batch_is_stored(store: PostgresStore) -> None:
    """Records as the owner knows them, renewed, renewed with a note, and lost."""
    plain, renewed, noted, lost = records = claimed(store, *"abcd")
    sent(
        store,
        Renewal(renewed.id, renewed.token, renewed.nonce, 1_000_000),
        Renewal(noted.id, noted.token, noted.nonce, 1_000_000, {"step": "two"}),
        Release(lost.id, lost.token, lost.nonce),
    )
    answers = sent(store, *(completion(one) for one in records))
    assert [one.verdict for one in answers] == [*[Verdict.OK] * 3, Verdict.LOST]
    done = [one for one in stored(store, *records[:3]) if one is not None]
    assert [one.state for one in done] == [RecordState.COMPLETED] * 3
    assert [one.result for one in done] == [f"{word} is done".encode() for word in "abc"]
    assert done[0].renewed_at == plain.renewed_at
    assert done[1].renewed_at > renewed.renewed_at
    assert done[2].note == {"step": "two"}


@pytest.mark.fault("F3")
def test_a_repeated_batch_of_completions_gets_the_same_answers(store: PostgresStore) -> None:
    records = claimed(store, *"abc")
    once, again = (sent(store, *(completion(one) for one in records)) for _ in range(2))
    assert [one.verdict for one in (*once, *again)] == [Verdict.OK] * 6
    assert [one.result for one in stored(store, *records) if one is not None] == [
        b"a is done",
        b"b is done",
        b"c is done",
    ]


def test_each_claim_of_a_batch_is_acquired_or_returns_the_stored_record(store: PostgresStore) -> None:
    running, done = claimed(store, "running", "done")
    sent(store, completion(done))
    words = ("running", "new", "done", "also new")
    answers = sent(store, *(request(word, f"second {word}".encode()) for word in words))
    verdicts = [one.verdict for one in answers]
    assert verdicts == [Verdict.RUNNING, Verdict.ACQUIRED, Verdict.REPLAY, Verdict.ACQUIRED]
    records = [one.record for one in answers if one.record is not None]
    assert records == stored(store, *records)
    assert records[0] == running


def test_a_batch_does_not_wait_for_a_record_that_another_transaction_has_locked(
    store: PostgresStore, schema: str
) -> None:
    """It does not mistake a missing row for success either."""
    records = claimed(store, *"ab")
    with psycopg.connect(os.environ[URL]) as other:
        table = sql.Identifier(schema, "onceward_records")
        other.execute(sql.SQL("SELECT FROM {} WHERE id = %s FOR UPDATE").format(table), (records[0].id,))
        with pytest.raises(StoreUnavailable):
            run(store.send([completion(one) for one in records], 1.0))
        assert [one and one.state for one in stored(store, *records)] == [RecordState.PENDING, RecordState.COMPLETED]
    answers = sent(store, *(completion(one) for one in records))
    assert [one.verdict for one in answers] == [Verdict.OK] * 2
