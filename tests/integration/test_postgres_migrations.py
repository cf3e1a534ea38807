"""Schemas of PostgreSQL: later migrations only add, and the older version keeps working meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from onceward import AsyncOnce, Once
from onceward.errors import StoreBroken
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore, schema
from onceward.stores.postgres.connection import PostgresConnection
from onceward.stores.postgres.statements import Statements, migration
from tests.cli.calls import as_json, call
from tests.servers.postgres import URL, Postgres, execute

pytestmark = [pytest.mark.fault("F67"), pytest.mark.usefixtures("postgres")]

A_LATER_ONE = """
ALTER TABLE {schema}onceward_records ADD COLUMN shade text NOT NULL DEFAULT 'blue'
;
CREATE INDEX onceward_shade ON {schema}onceward_records (shade) WHERE shade <> 'blue'
"""

WRITERS = 8


@pytest.fixture
def name(postgres: Postgres) -> Iterator[str]:
    """A schema of the test's own, without tables."""
    name = f"versions_{os.getpid()}"
    execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    yield name
    execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


def create_tables(name: str) -> None:
    run(PostgresStore(os.environ[URL], schema=name).migrate(ThreadRuntime()))


def test_every_migration_only_adds() -> None:
    for number in range(1, schema.LATEST + 1):
        text = migration(number).upper()
        assert not any(word in text for word in ("DROP ", "RENAME ", "ALTER COLUMN", "DELETE ", "TRUNCATE"))


def test_older_tables_are_migrated_and_keep_their_records(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_tables(name)
    with Once(PostgresStore(os.environ[URL], schema=name)) as once:
        assert once.run("k", lambda: "value") == "value"
    both = (migration(1), A_LATER_ONE)
    monkeypatch.setattr(schema, "migrations", lambda: both)
    with pytest.raises(StoreBroken, match=r"schema version 1.*onceward migrate"):
        Once(PostgresStore(os.environ[URL], schema=name)).read("k")
    with Once(PostgresStore(os.environ[URL], schema=name, migrate=True)) as once:
        assert once.run("k", lambda: "other") == "value"
    rows = execute(f"""SELECT name, value FROM "{name}".onceward_meta""")
    assert dict(rows) == {"schema_version": 2, "min_reader": 1}


def test_a_later_migration_is_applied_while_eight_writers_work_on_the_first_version(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_tables(name)
    done: Counter[int] = Counter()
    errors: list[BaseException] = []
    halfway, stop = threading.Barrier(WRITERS + 1), threading.Event()

    def write(writer: int) -> None:
        try:
            with Once(PostgresStore(os.environ[URL], schema=name), lease="20s") as once:
                number = writer
                while not stop.is_set() or number < 20 * WRITERS:
                    once.run(f"k{number}", done.update, [number])
                    once.run(f"k{number}", done.update, [number])
                    if number == writer + 2 * WRITERS:
                        halfway.wait(60)
                    number += WRITERS
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for one in writers:
        one.start()
    halfway.wait(60)
    both = (migration(1), A_LATER_ONE)
    with monkeypatch.context() as newer:
        newer.setattr(schema, "migrations", lambda: both)
        run(PostgresStore(os.environ[URL], schema=name).migrate(ThreadRuntime()))
    stop.set()
    for one in writers:
        one.join(60)
    assert errors == []
    assert set(done.values()) == {1}
    assert len(done) >= 20 * WRITERS
    rows = execute(f"""SELECT state, shade, count(*) FROM "{name}".onceward_records GROUP BY state, shade""")
    assert rows == [(None, "blue", len(done))], "all are COMPLETED"
    with Once(PostgresStore(os.environ[URL], schema=name)) as older:
        assert older.run("later", lambda: "works") == "works"


def test_a_migration_that_waits_for_a_long_transaction_blocks_no_caller(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_tables(name)
    both = (migration(1), A_LATER_ONE)
    monkeypatch.setattr(schema, "LOCK_TIMEOUT", 50)
    monkeypatch.setattr(schema, "RETRY_DELAY", 0.05)
    with Once(PostgresStore(os.environ[URL], schema=name), lease="20s") as once:
        once.run("ready", lambda: None)
        with psycopg.connect(os.environ[URL]) as long:
            long.execute(f'SELECT count(*) FROM "{name}".onceward_records')
            with monkeypatch.context() as newer:
                newer.setattr(schema, "migrations", lambda: both)
                migrating = threading.Thread(
                    target=lambda: run(PostgresStore(os.environ[URL], schema=name).migrate(ThreadRuntime()))
                )
                migrating.start()
                for number in range(20):
                    once.run(f"k{number}", lambda: None)
                long.commit()
                migrating.join(60)
    assert execute(f"""SELECT value FROM "{name}".onceward_meta WHERE name = 'schema_version'""") == [(2,)]


def test_two_concurrent_migrations_are_applied_once(name: str) -> None:
    stores = [PostgresStore(os.environ[URL], schema=name) for _ in range(4)]
    threads = [threading.Thread(target=lambda store=store: run(store.migrate(ThreadRuntime()))) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = run(stores[0].schema(ThreadRuntime(), timeout=5))
    assert (found.version, found.statements) == (schema.LATEST, ())


# ── the command ──


def test_the_command_shows_prints_and_creates_the_tables(name: str) -> None:
    url = f"{os.environ[URL]}?schema={name}"
    shown = as_json("--store", url, "migrate", "--dry-run")
    assert (shown["version"], shown["done"]) == (0, False)
    assert execute("SELECT to_regnamespace(%s)", name) == [(None,)], "it did not create anything"
    script = call("--store", url, "migrate", "--sql").stdout
    assert script.count("CREATE TABLE") == 7
    made = json.loads(call("--store", url, "migrate", "--yes").stdout)
    assert (made["version"], made["done"]) == (schema.LATEST, True)
    with Once(url) as once:
        assert once.run("k", lambda: "value") == "value"
    assert '"k"' in call("--store", url, "ls").stdout
    assert call("--store", url, "doctor").exit_code == 0


def test_the_printed_statements_can_be_executed_by_hand(name: str) -> None:
    url = f"{os.environ[URL]}?schema={name}"
    script = call("--store", url, "migrate", "--sql").stdout
    with psycopg.connect(os.environ[URL], autocommit=True) as theirs:
        theirs.execute(script.encode())
    assert as_json("--store", url, "migrate", "--dry-run")["statements"] == []


@pytest.mark.parametrize("mode", ["blocking", "async"])
def test_a_client_creates_the_tables_on_request(postgres: Postgres, mode: str) -> None:
    name = f"migrated_{mode}_{os.getpid()}"
    url = f"{os.environ[URL]}?schema={name}"
    if mode == "blocking":
        with Once(url, cache=5) as once:
            once.migrate()
            once.migrate()  # there is nothing left to do
            assert once.run("key", lambda: 7) == 7
    else:

        async def main() -> None:
            async with AsyncOnce(url) as once:
                await once.migrate()
                assert await once.read("key") is None

        asyncio.run(main())
    execute(f"DROP SCHEMA {name} CASCADE")


def test_what_has_no_tables_to_migrate_is_left_alone(tmp_path: Path) -> None:
    for url in ("memory://", "sqlite://:memory:", f"sqlite:///{tmp_path}/a.db"):
        with Once(url) as once:
            once.migrate()
            assert once.run("key", lambda: 7) == 7


def test_a_migration_that_waited_for_another_sees_the_tables_of_the_other(name: str) -> None:
    """The server may use a cached catalog entry for a table, and that entry is older than the wait."""
    store = PostgresStore(os.environ[URL], schema=name, migrate=True)
    statements = run(store.schema(ThreadRuntime(), timeout=10)).statements
    with psycopg.connect(os.environ[URL]) as first, ThreadPoolExecutor(1) as pool:
        first.execute(f"SELECT pg_advisory_xact_lock({schema._LOCK})")
        second = pool.submit(lambda: run(store.open(ThreadRuntime())))
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        deadline = time.monotonic() + 30
        while not execute(waiting)[0][0]:
            assert time.monotonic() < deadline, "no session waits for the lock"
            time.sleep(0.01)
        for statement in statements:
            first.execute(statement.encode())
        first.commit()
        second.result(60)
    assert run(store.schema(ThreadRuntime(), timeout=10)).statements == ()
    run(store.close())


def test_a_migration_may_take_longer_than_the_timeout_for_opening(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.stores.postgres.store.OPEN_TIMEOUT", 2.0)
    apply = schema.apply

    async def apply_slowly(connection: PostgresConnection, statements: Statements, deadline: float) -> None:
        await connection.runtime.sleep(2.5)
        await apply(connection, statements, deadline)

    monkeypatch.setattr(schema, "apply", apply_slowly)
    with Once(PostgresStore(os.environ[URL], schema=name, migrate=True)) as once:
        assert once.run("k", lambda: "value") == "value"
