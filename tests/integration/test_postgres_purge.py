"""Purge on PostgreSQL: by index, in chunks, without reading the same entries twice, and beside other work."""

from __future__ import annotations

import os
import re

import psycopg
import pytest

from onceward.protocol.transitions import CLOCK_MARGIN
from onceward.runtime.threads import run
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.maintenance import CHUNK
from onceward.stores.postgres.pool import SESSION_SETTINGS
from onceward.stores.postgres.statements import Statements, migration
from onceward.testing.conformance.harness import claim_request
from tests.integration.postgres_backend import store
from tests.servers.postgres import URL, execute

__all__ = ["store"]  # fixture, re-exported so that pytest finds it

EXPIRED, KEPT = 20 * CHUNK, 5 * CHUNK
DAY = 86_400_000_000  # µs


@pytest.fixture
def table(store: PostgresStore, schema: str) -> str:
    """Expired records, and others that are kept: in their window, or with a token of the last minute."""
    name = f'"{schema}".onceward_records'
    now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    columns = "id, scope, key, token, updated_at, valid_until, result"
    rows = f"INSERT INTO {name} ({columns}) SELECT sha256((%s || n)::bytea), 's', n::text, "
    series = "repeat('x', 1000)::bytea FROM generate_series(1, %s) AS n"
    execute(f"{rows} {now} - {2 * DAY}, 0, {now} - {DAY} + n, {series}", "expired", EXPIRED)
    execute(f"{rows} {now} - {2 * DAY}, 0, {now} + {DAY}, {series}", "in its window", KEPT)
    execute(f"{rows} {now} - 60000000, 0, {now} - 1000000, {series}", "recent", KEPT)
    with psycopg.connect(os.environ[URL], autocommit=True) as connection:
        connection.execute(f"VACUUM ANALYZE {name}".encode())
    return name


def test_the_index_is_on_the_time_from_which_a_record_may_be_purged() -> None:
    assert f"greatest(valid_until, token + {CLOCK_MARGIN + 1})" in migration(1)


def test_purge_finds_its_records_by_index_and_visits_no_other(store: PostgresStore, table: str, schema: str) -> None:
    statement = Statements(schema).purgeable
    values = [None, CLOCK_MARGIN, DAY, CHUNK, 0, 0, 0]
    with psycopg.connect(os.environ[URL], autocommit=True) as connection:
        connection.execute("; ".join(SESSION_SETTINGS))
        text = re.sub(r"\$(\d)", lambda found: f"%({'abcdefg'[int(found[1]) - 1]})s", statement.text.replace("%", "%%"))
        given = dict(zip("abcdefg", values, strict=True))
        lines = connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {text}".encode(), given).fetchall()
    plan = "\n".join(line for (line,) in lines)
    assert "Seq Scan" not in plan, plan
    assert re.search(rf"Index Scan using onceward_purgeable .*rows={CHUNK}(\.00)? ", plan), plan
    assert "Rows Removed by Filter" not in plan, plan


@pytest.mark.rival(28)
def test_millions_of_records_would_be_purged_in_linear_time(store: PostgresStore, table: str) -> None:
    """An open transaction keeps the index entries of deleted records alive: no chunk may read those of another."""

    def entries_read() -> int:
        execute("SELECT pg_stat_force_next_flush()")
        return int(execute("SELECT idx_tup_read FROM pg_stat_all_indexes WHERE indexrelid = %s::regclass", index)[0][0])

    index = table.replace("onceward_records", "onceward_purgeable")
    before = entries_read()
    with psycopg.connect(os.environ[URL]) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        assert run(store.purge(10 * EXPIRED, timeout=60)) == EXPIRED
    run(store.close())  # its session reports what it read
    assert entries_read() - before < 2 * EXPIRED
    assert execute(f"SELECT count(*) FROM {table}") == [(2 * KEPT,)]


@pytest.mark.rival(28)
def test_a_claim_beside_a_purge_does_not_wait_for_it(store: PostgresStore, table: str) -> None:
    """Each chunk is a transaction of its own, and skips records that another transaction holds."""
    with psycopg.connect(os.environ[URL]) as other:
        other.execute(f"SELECT * FROM {table} WHERE valid_until < token + {2 * DAY} LIMIT 7 FOR UPDATE".encode())
        assert run(store.purge(10 * EXPIRED, timeout=60)) == EXPIRED - 7
        assert run(store.claim([claim_request("new")], timeout=1))[0].record is not None
    assert run(store.purge(10 * EXPIRED, timeout=60)) == 7
