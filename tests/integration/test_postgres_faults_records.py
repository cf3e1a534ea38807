"""Faults of records on PostgreSQL: unreadable, in conflict, locked by another transaction, restored. No mocks."""

from __future__ import annotations

import os
import threading

import psycopg
import pytest

from onceward import Once
from onceward.protocol.ports import Filter, SortOrder
from onceward.protocol.requests import Complete, Verdict
from onceward.runtime.threads import run
from onceward.stores.postgres import PostgresStore
from onceward.testing.conformance.harness import LEASE, claim_request
from tests.integration.postgres_backend import claim, store
from tests.servers.postgres import URL, execute

__all__ = ["store"]  # fixtures, re-exported so that pytest finds them


def test_a_record_that_cannot_be_read_hides_no_other_in_a_scan(store: PostgresStore, schema: str) -> None:
    ids = {claim(store, claim_request(key)).record.id for key in ("a", "b", "c")}
    bad = min(ids)
    execute(f'UPDATE "{schema}".onceward_records SET after_crash = 9 WHERE id = %s', bad)
    found: set[bytes] = set()
    unreadable: list[str] = []
    cursor: bytes | None = None
    while True:
        page = run(store.scan(Filter(), cursor=cursor, limit=1, timeout=5))
        found |= {record.id for record in page.records}
        unreadable += page.unreadable
        cursor = page.cursor
        if cursor is None:
            break
    assert (found, len(unreadable)) == (ids - {bad}, 1)
    assert len(run(store.first(Filter(), order=SortOrder.CREATED, limit=9, timeout=5)).unreadable) == 1


# ── conflicts with other transactions ──


@pytest.mark.fault("F55")
def test_a_transaction_of_ours_that_the_server_cannot_serialize_is_repeated(schema: str, store: PostgresStore) -> None:
    strict = f"{os.environ[URL]}?options=-c%20default_transaction_isolation%3Dserializable"
    done: list[str] = []
    start = threading.Barrier(6)

    def work(name: str) -> None:
        with Once(PostgresStore(strict, schema=schema), lease="10s") as once:
            start.wait(60)
            for number in range(12):
                once.run(f"k{number}", done.append, f"{number}")

    def guarded(name: str) -> None:
        try:
            work(name)
        except BaseException as error:
            done.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(f"{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done, key=len) == sorted((f"{number}" for number in range(12)), key=len)


@pytest.mark.rival(28)
@pytest.mark.fault("F66")
def test_purge_commits_in_chunks_and_skips_locked_records(store: PostgresStore, schema: str) -> None:
    table = f'"{schema}".onceward_records'
    execute(
        f"INSERT INTO {table} (id, scope, key, state, token, updated_at) "
        "SELECT sha256(n::text::bytea), 's', n::text, 'FREE', 1, 1 FROM generate_series(1, 1200) AS n"
    )
    with psycopg.connect(os.environ[URL]) as other:
        other.execute(f"SELECT * FROM {table} WHERE key = '7' FOR UPDATE".encode())  # locked by another transaction
        before = commits()
        assert run(store.purge(10_000, timeout=20)) == 1199
        assert commits() - before >= 3, "one transaction for at most 500"
    assert run(store.purge(10_000, timeout=20)) == 1


def commits() -> int:
    execute("SELECT pg_stat_force_next_flush()")
    [(number,)] = execute("SELECT pg_current_xact_id()::text::bigint")
    return int(number)


# ── restored ──


@pytest.mark.fault("F68")
def test_after_an_older_backup_is_restored_the_token_still_grows(store: PostgresStore, schema: str) -> None:
    table = f'"{schema}".onceward_records'
    claim(store, claim_request("key", lease=1))
    [(row,)] = execute(f"SELECT token FROM {table}")  # what the backup has
    late = claim(store, claim_request("key", lease=LEASE)).record
    execute(f"UPDATE {table} SET token = %s, nonce = '', state = 'FREE', lease_until = NULL", row)
    fresh = claim(store, claim_request("key")).record
    assert fresh.token > late.token > row
    [answer] = run(store.settle([Complete(late.id, late.token, late.nonce, b"late", b"d")], timeout=5))
    assert answer.verdict is Verdict.LOST
