"""The first pages of the console at a large number of records: at most ten queries, and none of them a full scan."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceward import Once
from onceward.console import Console
from onceward.console.page import built_in_pages
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.connection import PostgresConnection
from onceward.stores.postgres.statements import Statements
from onceward.stores.sqlite import SQLiteStore
from tests.administration.many_records import fill_postgres, fill_sqlite, id_of
from tests.console.visitor import Visitor
from tests.integration.postgres_backend import store as postgres_store
from tests.raw_sqlite import database_of, traced
from tests.servers.postgres import URL

__all__ = ["postgres_store"]  # fixture, re-exported so that pytest finds it

RECORDS = int(os.environ.get("ONCEWARD_LISTED_RECORDS", "60000"))  # make soak: a million
MAX_QUERIES = 10
FILTERS = (
    "scope=shop/charge", "scope=shop/rare", "scope=shop/charge%40acme", "tenant=acme", "prefix=order:59",
    "prefix=none", f"id={id_of(7)}", "id=3031", "note=source=file+3", "error_type=KeyError", "since=2023-11-14",
    "since=2h", "before=2h", "before=2023-11-14", "state=COMPLETED", "state=FAILED", "state=PARKED", "state=PENDING",
    "state=FAILED&error_type=KeyError&tenant=acme&prefix=order:59&since=2023-11-14", "state=FREE", "limit=500",
)  # fmt: skip
PATHS = [
    *(f"/{page.name}" for page in built_in_pages() if page.group),
    *(f"/keys?{wanted}" for wanted in FILTERS),
    f"/keys/{id_of(50)}?show=result",
    "/find?q=order:59",
    "/find?q=none",
    f"/find?q={id_of(7)}",
]


def paths(visitor: Visitor) -> Iterator[str]:
    """Yield the addresses of the first pages, and of the pages that they link to."""
    visitor.get("/workers")  # opens the store
    yield from PATHS
    for path in ("/keys?format=json", "/keys?state=FAILED&format=json", "/parked?format=json"):
        yield f"{path}&after={visitor.json(path)['next']}"
    [*groups] = visitor.json("/failures?format=json")["failure_groups"]
    yield f"/failures/{groups[0]['id']}"


@pytest.fixture
def large_sqlite(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "once.db")
    run(store.open(ThreadRuntime()))
    fill_sqlite(tmp_path / "once.db", RECORDS)
    yield store
    run(store.close())


def is_full_scan(steps: list[str]) -> bool:
    """Return whether a plan of SQLite visits all records or entries. The counters are few: one row per hour."""
    scanned = {step.split()[1] for step in steps if step.startswith("SCAN onceward_")}
    if scanned == {"onceward_audit"}:  # the latest entries: the table in its own order, up to the limit
        return "USE TEMP B-TREE FOR ORDER BY" in steps
    return bool(scanned - {"onceward_counters"})


@pytest.mark.timeout(900)
def test_no_page_of_a_large_sqlite_file_scans_it(large_sqlite: SQLiteStore) -> None:
    database = database_of(large_sqlite)

    def plan_of(statement: str) -> list[str]:
        return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()]

    visitor = Visitor(Console(Once(large_sqlite)))
    for path in paths(visitor):
        with traced(large_sqlite) as statements:
            answer = visitor.get(path)
        assert answer.status_code in (200, 303), (path, answer.text)
        selects = [one for one in statements if one.startswith(("SELECT", "WITH"))]
        assert len(selects) <= MAX_QUERIES, (path, len(selects), selects)
        for statement in selects:
            steps = plan_of(statement)
            assert not is_full_scan(steps), (path, statement, steps)
            if "FROM onceward_records" in statement:
                assert "USE TEMP B-TREE FOR ORDER BY" not in steps, (path, statement, steps)
    assert is_full_scan(plan_of("SELECT count(error) FROM onceward_records")), "a full scan is recognised"
    assert is_full_scan(plan_of("SELECT * FROM onceward_audit ORDER BY why")), "a full scan is recognised"


@pytest.fixture
def large_postgres(postgres_store: PostgresStore, schema: str) -> PostgresStore:
    fill_postgres(os.environ[URL], schema, RECORDS)
    return postgres_store


def plan_of(connection: psycopg.Connection[Any], text: str, values: tuple[Any, ...] = ()) -> str:
    return "\n".join(line for (line,) in connection.execute(f"EXPLAIN {text}".encode(), values))


@pytest.mark.timeout(900)
def test_no_page_of_a_large_postgres_table_scans_it(
    large_postgres: PostgresStore, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[tuple[str, tuple[Any, ...]]] = []
    send = PostgresConnection.run

    async def recorded(connection: PostgresConnection, deadline: float, *calls: Any) -> Any:
        queries.extend((statement.text, values) for statement, values in calls)
        return await send(connection, deadline, *calls)

    monkeypatch.setattr(PostgresConnection, "run", recorded)
    visitor = Visitor(Console(Once(large_postgres)))
    full_scans = ("Seq Scan on onceward_records", "Seq Scan on onceward_audit")
    with psycopg.connect(os.environ[URL], autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        for path in paths(visitor):
            queries.clear()
            answer = visitor.get(path)
            assert answer.status_code in (200, 303), (path, answer.text)
            assert len(queries) <= MAX_QUERIES, (path, len(queries), queries)
            for text, values in queries:
                plan = plan_of(connection, text, values)
                assert not any(scan in plan for scan in full_scans), (path, text, plan)
        assert full_scans[0] in plan_of(connection, Statements(schema).counts.text), "a full scan is recognised"
