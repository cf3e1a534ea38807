"""The first errors of a newcomer: each says what to do, and names the store."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import psycopg
import pytest

from onceward import Once
from onceward.cli.exit_codes import Exit
from onceward.errors import MissingExtra
from onceward.stores import registry
from tests.cli.calls import call, line
from tests.servers.postgres import URL


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_missing_file_names_the_command_that_creates_it() -> None:
    said = line(call("doctor", "--store", "sqlite:///shop.db"))
    assert "to create it, run `onceward migrate --store sqlite:///shop.db`" in said
    assert call("migrate", "--yes", "--store", "sqlite:///shop.db").exit_code == Exit.OK
    assert call("doctor", "--store", "sqlite:///shop.db").exit_code == Exit.OK


def test_an_old_schema_names_the_store_to_migrate(folder: Path) -> None:
    with sqlite3.connect(folder / "my shop.db") as connection:
        connection.execute("CREATE TABLE onceward_meta (name TEXT PRIMARY KEY, value INTEGER)")
        connection.execute("INSERT INTO onceward_meta VALUES ('schema_version', 0)")
    connection.close()
    said = line(call("ls", "--store", "sqlite:///my shop.db"))
    assert "run `onceward migrate --store 'sqlite:///my shop.db'`" in said


def test_migrate_with_yes_does_not_print_every_statement() -> None:
    result = call("migrate", "--yes", "--store", "sqlite:///shop.db")
    assert "CREATE TABLE" not in result.stderr
    assert "16 statements, which --dry-run shows" in result.stderr


def test_a_mistyped_scope_suggests_the_nearest_one() -> None:
    with Once("sqlite:///onceward.db", app="three") as once, once.claim("k", name="sync"):
        pass
    assert "Did you mean three/sync?" in line_with(call("ls", "--scope", "three/snc").stderr, "Did you mean")
    assert "Did you mean" not in call("ls", "--scope", "other/thing").stderr


def line_with(text: str, part: str) -> str:
    return next((one for one in text.splitlines() if part in one), text)


def test_a_missing_driver_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise ModuleNotFoundError("No module named 'redis'", name="redis")

    monkeypatch.setattr(registry, "import_module", fails)
    with pytest.raises(MissingExtra, match=r'pip install "onceward\[redis\]"'):
        registry.open_store("redis://localhost/0")


@pytest.mark.usefixtures("postgres")
def test_a_postgresql_user_without_rights_is_told_what_to_grant() -> None:
    url = os.environ[URL]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS newcomers CASCADE")
        connection.execute("CREATE SCHEMA newcomers")
        connection.execute("DROP ROLE IF EXISTS newcomer")
        connection.execute("CREATE ROLE newcomer LOGIN")
    limited = url.replace("postgres@", "newcomer@") + "?schema=newcomers"
    said = call("migrate", "--yes", "--store", limited).stderr
    assert "this user lacks a privilege" in said
    assert "grant it CREATE on the schema" in said
    assert "onceward migrate --sql" in said
    said = line(call("doctor", "--store", url + "?schema=newcomers"))
    assert "run `onceward migrate --store 'postgresql://postgres@" in said
    assert "schema=newcomers" in said
