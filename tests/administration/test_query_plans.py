"""The first pages at a large number of records: at most ten queries, and none of them a full scan."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceward.administration import Admin, ListingFilter
from onceward.protocol.record import RecordState
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.connection import PostgresConnection
from onceward.stores.postgres.statements import Statements
from onceward.stores.sqlite import SQLiteStore
from tests.integration.postgres_backend import store as postgres_store
from tests.raw_sqlite import database_of, traced
from tests.servers.postgres import URL, execute

__all__ = ["postgres_store"]  # fixture, re-exported so that pytest finds it

RECORDS = int(os.environ.get("ONCEWARD_LISTED_RECORDS", "60000"))  # make soak: a million
MAX_QUERIES = 10
FULL_SCAN = "Seq Scan on onceward_records"

PAGES: dict[str, Any] = {
    "overview": lambda admin: admin.overview(),
    "keys": lambda admin: admin.keys(),
    "keys of a scope": lambda admin: admin.keys(ListingFilter(scopes=("shop/rare",))),
    "keys of a tenant": lambda admin: admin.keys(ListingFilter(tenants=("acme",), prefix="k9")),
    "completed keys": lambda admin: admin.keys(ListingFilter(states=(RecordState.COMPLETED,))),
    "failed keys": lambda admin: admin.keys(ListingFilter(states=(RecordState.FAILED,), error_type="KeyError")),
    "parked": lambda admin: admin.parked(limit=5),
    "failures": lambda admin: admin.failures(),
    "workers": lambda admin: admin.workers(),
    "one key": lambda admin: admin.key("00" * 32),
    "find": lambda admin: admin.find("k17"),
}


def second_page(admin: Admin, wanted: ListingFilter) -> Any:
    first = run(admin.keys(wanted))
    return admin.keys(wanted, cursor=first.cursor)


ROWS = """
    'shop/charge', 'k' || n, 1700000000000000 + n, 1700000000000000 + n + 5,
    CASE WHEN n % 50 = 0 THEN 'FAILED' WHEN n % 5000 = 1 THEN 'PARKED' WHEN n % 2000 = 3 THEN 'PENDING' END,
    CASE WHEN n % 50 = 0 THEN 'ValueError' END
"""
COLUMNS = "id, scope, key, token, updated_at, state, error_type"


@pytest.fixture
def large_sqlite(tmp_path: Path) -> SQLiteStore:
    store = SQLiteStore(tmp_path / "once.db")
    run(store.open(ThreadRuntime()))
    with closing(sqlite3.connect(tmp_path / "once.db")) as database, database:
        database.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {RECORDS})"
            f" INSERT INTO onceward_records ({COLUMNS}) SELECT randomblob(32), {ROWS} FROM numbers"
        )
    return store


def test_no_page_of_a_large_sqlite_file_scans_it(large_sqlite: SQLiteStore) -> None:
    admin, database = Admin(large_sqlite), database_of(large_sqlite)
    for name, page in PAGES.items():
        with traced(large_sqlite) as statements:
            run(page(admin))
        selects = [one for one in statements if one.startswith(("SELECT", "WITH"))]
        assert selects, name
        assert len(selects) <= MAX_QUERIES, (name, selects)
        for statement in selects:
            steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()]
            scans = [one for one in steps if one.startswith("SCAN onceward_")]
            assert not [one for one in scans if "onceward_counters" not in one], (name, statement, steps)
            assert "USE TEMP B-TREE FOR ORDER BY" not in steps, (name, statement, steps)
    [(_, _, _, step)] = database.execute("EXPLAIN QUERY PLAN SELECT count(error) FROM onceward_records").fetchall()
    assert step.startswith("SCAN onceward_"), "a full scan is recognised"
    assert len(run(second_page(admin, ListingFilter())).rows) == 50
    run(large_sqlite.close())


@pytest.fixture
def large_postgres(postgres_store: PostgresStore, schema: str) -> PostgresStore:
    table = f'"{schema}".onceward_records'
    execute(
        f"INSERT INTO {table} ({COLUMNS}) SELECT sha256(n::text::bytea), {ROWS} FROM generate_series(1, {RECORDS}) AS n"
    )
    with psycopg.connect(os.environ[URL], autocommit=True) as connection:
        connection.execute(f"VACUUM ANALYZE {table}".encode())
    return postgres_store


def plan_of(text: str, values: tuple[Any, ...]) -> str:
    with psycopg.connect(os.environ[URL], cursor_factory=psycopg.RawCursor) as connection:
        return "\n".join(line for (line,) in connection.execute(f"EXPLAIN {text}".encode(), values))


def test_no_page_of_a_large_postgres_table_scans_it(
    large_postgres: PostgresStore, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[tuple[str, tuple[Any, ...]]] = []
    send = PostgresConnection.run

    async def recorded(connection: PostgresConnection, deadline: float, *calls: Any) -> Any:
        queries.extend((statement.text, values) for statement, values in calls)
        return await send(connection, deadline, *calls)

    admin = Admin(large_postgres)
    for name, page in PAGES.items():
        queries.clear()
        with monkeypatch.context() as patched:
            patched.setattr(PostgresConnection, "run", recorded)
            run(page(admin))
        assert 0 < len(queries) <= MAX_QUERIES, (name, queries)
        for text, values in queries:
            plan = plan_of(text, values)
            assert FULL_SCAN not in plan, (name, text, plan)
    assert FULL_SCAN in plan_of(Statements(schema).counts.text, ()), "a full scan is recognised"
    assert len(run(second_page(admin, ListingFilter())).rows) == 50
