"""PostgreSQL without tables, with wrong settings or of another version: an immediate error, and no implicit tables."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from onceward import Once
from onceward.errors import ConfigurationError, StoreBroken, StoreNotSetUp, VersionSkew
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores import open_store
from onceward.stores.postgres import PostgresStore
from tests.integration.postgres_backend import opened, store
from tests.servers.postgres import URL, Postgres, execute

__all__ = ["store"]  # fixtures, re-exported so that pytest finds them


# ── what the tables are, and are not ──


def test_without_its_tables_it_says_which_command_makes_them(postgres: Postgres) -> None:
    with pytest.raises(StoreBroken, match="onceward migrate"):
        run(PostgresStore(os.environ[URL], schema="missing_object").open(ThreadRuntime()))
    assert execute("SELECT to_regnamespace('missing_object')") == [(None,)], "no DDL unless asked for"


@pytest.mark.fault("F50")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dbname": "missing_object"}, "the database does not exist"),
        ({"user": "unknown_user"}, "user name or password is wrong"),
        ({"sslmode": "requir"}, "settings that do not work"),
        ({}, "onceward migrate"),
    ],
    ids=["database", "user", "value", "tables"],
)
def test_a_wrong_url_is_never_taken_for_a_store_that_is_down(
    postgres: Postgres, caplog: pytest.LogCaptureFixture, wrong: dict[str, str], message: str
) -> None:
    """A typing error with on_store_down="run" would let everything run unprotected, from the first day on."""
    url = f"{os.environ[URL]}?schema=missing_object"
    done: list[int] = []
    with (
        caplog.at_level(logging.WARNING),
        Once("".join([url, *(f"&{name}={value}" for name, value in wrong.items())]), on_store_down="run") as once,
        pytest.raises(StoreNotSetUp, match=message),
    ):
        once.run("key", done.append, 1)
    assert done == []
    assert "connection lost" not in caplog.text


def test_a_schema_that_requires_a_newer_version_is_left_alone(store: PostgresStore, schema: str) -> None:
    before = execute(f"""SELECT name, value FROM "{schema}".onceward_meta""")
    execute(f"""UPDATE "{schema}".onceward_meta SET value = 99 WHERE name IN ('min_reader', 'schema_version')""")
    try:
        with pytest.raises(VersionSkew, match="99"):
            opened(os.environ[URL], schema=schema)
    finally:
        for name, value in before:
            execute(f"""UPDATE "{schema}".onceward_meta SET value = %s WHERE name = %s""", value, name)


@pytest.mark.rival(25)
def test_nothing_partitions_the_records_and_their_id_is_unique_in_all_states(store: PostgresStore, schema: str) -> None:
    [(kind, unique)] = execute(
        "SELECT c.relkind::text, i.indkey::text FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid "
        "WHERE i.indisprimary AND c.oid = %s::regclass",
        f'"{schema}".onceward_records',
    )
    [(place,)] = execute(
        "SELECT attnum::text FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'id'",
        f'"{schema}".onceward_records',
    )
    assert (kind, unique) == ("r", place)


# ── URLs ──


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("schema=a.b", "schema"),
        ("schema=1a", "schema"),
        ("migrate=perhaps", "neither yes nor no"),
        ("connections=0", "1 to 1000"),
        ("schema=a&schema=b", "repeats a setting"),
        ("schem=a", "did you mean 'schema'"),
        ("ssl_mode=require", "did you mean 'sslmode'"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(query: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_store(f"postgresql://localhost/db?{query}")


def test_the_name_of_a_store_has_no_password() -> None:
    store = open_store("postgresql://me:secret@host/db?password=hidden&sslmode=require")
    assert store.name == "postgresql://me@host/db?sslmode=require"


def test_an_encoding_that_cannot_hold_every_key_is_refused(postgres: Postgres, tmp_path: Path) -> None:
    name = f"latin_{os.getpid()}"
    execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(StoreBroken, match="LATIN1"):
        opened(os.environ[URL].replace("/postgres", f"/{name}").replace(f"/{name}@", "/postgres@"))
    execute(f"DROP DATABASE {name} WITH (FORCE)")
