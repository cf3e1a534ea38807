from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from psycopg.rows import dict_row

from onceward.protocol.ports import Clock
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.table import PostgresTable
from onceward.testing.clock import FakeClock
from onceward.testing.conformance import StoreConformance, StoreFactory
from onceward.testing.conformance.fencing import FencingChecks
from onceward.testing.conformance.replies import ReplyChecks
from tests.conformance.sql_rows import filled
from tests.raw_postgres import use_table
from tests.servers import pgbouncer, postgres
from tests.servers.postgres import execute, past_the_store, schema_of

SOAKING = os.environ.get("ONCEWARD_HYPOTHESIS_PROFILE") == "soak"


class InBatches(PostgresTable):
    """Handles a single claim as a batch of one."""

    async def _claim_one(self, *_: object) -> None:
        return None


class Hooks(StoreFactory):
    """Hooks that query the server directly, not through the store or a pooler."""

    url = postgres.URL
    table: type[PostgresTable] = PostgresTable

    def open(self, directory: Path, clock: Clock) -> PostgresStore:
        theirs = clock if isinstance(clock, FakeClock) else None  # else the server's own clock
        store = PostgresStore(os.environ[self.url], schema=schema_of(directory), migrate=True, clock=theirs)
        use_table(store, self.table)
        return store

    def raw(self, directory: Path, id: bytes) -> Mapping[str, object] | None:
        cursor = past_the_store().cursor(row_factory=dict_row)
        row = cursor.execute(f"SELECT * FROM {table(directory)} WHERE id = %s", (id,)).fetchone()
        return None if row is None else filled(row)

    def writes(self, directory: Path) -> int:
        """Return a hash of each row's location, writer and locker."""
        versions = "SELECT coalesce(string_agg(concat(ctid, xmin, xmax), ',' ORDER BY ctid), '') FROM"
        tables = [f'"{schema_of(directory)}".onceward_{name}' for name in postgres.TABLES]
        return hash(tuple(execute(f"{versions} {table}")[0][0] for table in tables))

    def overwrite(self, directory: Path, id: bytes, **fields: Any) -> None:
        for name, value in fields.items():
            execute(f"UPDATE {table(directory)} SET {name} = %s WHERE id = %s", value, id)


def table(directory: Path) -> str:
    return f'"{schema_of(directory)}".onceward_records'


@pytest.mark.usefixtures("postgres")
@pytest.mark.mission("B4")
class TestPostgresStore(Hooks, StoreConformance):
    examples = None if SOAKING else 30


@pytest.mark.usefixtures("pgbouncer")
@pytest.mark.mission("B4")
@pytest.mark.fault("F65")
class TestPostgresStoreBehindPgBouncer(Hooks, StoreConformance):
    """Each transaction on another connection of the server, and no prepared statements."""

    url = pgbouncer.URL
    table = InBatches
    examples = None if SOAKING else 10


@pytest.mark.usefixtures("postgres")
@pytest.mark.fault("F43")
class TestPostgresStoreOnItsOwnClock(Hooks, FencingChecks, ReplyChecks):
    """The time comes from the server."""

    fake_clock = False
