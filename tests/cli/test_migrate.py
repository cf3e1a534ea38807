"""`onceward migrate`: shown, printed as SQL, or done. No other command migrates."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onceward import Once
from onceward.cli import open_store
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.stores.sqlite import schema
from tests.cli.calls import as_json, call, line, on_a_terminal

pytestmark = pytest.mark.fault("F67")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


A_LATER_ONE = "ALTER TABLE onceward_records ADD COLUMN flavour TEXT\n;\nCREATE TABLE onceward_later (flavour TEXT)"


@pytest.fixture
def old(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the first version with a record, and an Onceward that has a second migration."""
    with closing(sqlite3.connect("onceward.db")) as raw, raw:
        for statement in schema.statements(0):
            raw.execute(statement)
        raw.execute(
            "INSERT INTO onceward_records (id, scope, key, state, token, updated_at)"
            " VALUES (x'01', 's', 'k', 'PARKED', 7, 7)"
        )
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, A_LATER_ONE))
    monkeypatch.setattr(schema, "LATEST", len(schema.MIGRATIONS))
    monkeypatch.setattr(open_store, "LATEST", len(schema.MIGRATIONS))
    return folder


def version() -> int:
    with closing(sqlite3.connect("onceward.db")) as raw:
        found: int = raw.execute("SELECT value FROM onceward_meta WHERE name = 'schema_version'").fetchone()[0]
    return found


def fingerprint(folder: Path) -> str:
    return hashlib.sha256((folder / "onceward.db").read_bytes()).hexdigest()


def test_a_dry_run_shows_the_versions_and_the_statements_and_changes_nothing(old: Path) -> None:
    before = fingerprint(old)
    result = call("migrate", "--dry-run", "-o", "table")
    assert result.exit_code == 0
    assert f"version 1; this Onceward writes version {schema.LATEST}" in result.stdout
    assert "CREATE TABLE onceward_later (" in result.stdout
    document = as_json("migrate", "--dry-run")
    assert (document["version"], document["latest"], document["done"]) == (1, schema.LATEST, False)
    assert document["statements"][0].startswith("ALTER TABLE onceward_records")
    assert (fingerprint(old), version()) == (before, 1)


def test_the_printed_sql_does_what_migrate_would(old: Path) -> None:
    before = fingerprint(old)
    for shape in ("auto", "json", "table"):
        script = call("migrate", "--sql", "-o", shape).stdout
        assert script.startswith("-- sqlite:")
    assert fingerprint(old) == before
    with closing(sqlite3.connect("onceward.db")) as database:
        database.executescript(script)
    assert version() == schema.LATEST
    assert [one["key"] for one in as_json("ls")] == ["k"]
    assert as_json("audit") == []
    assert call("migrate", "--sql").stdout.endswith("-- There is nothing to do.\n")


def test_migrate_asks_and_does_nothing_without_a_terminal_unless_yes_is_said(old: Path) -> None:
    before = fingerprint(old)
    refused = call("migrate")
    assert refused.exit_code == Exit.REFUSED
    assert "use --yes" in refused.stderr.splitlines()[-1]
    assert "CREATE TABLE onceward_later" in refused.stderr, "what would be done is shown first"
    assert fingerprint(old) == before
    done = call("migrate", "--yes")
    assert done.exit_code == 0
    assert (json.loads(done.stdout)["version"], json.loads(done.stdout)["done"]) == (schema.LATEST, True)
    assert version() == schema.LATEST
    assert as_json("show", "k")["state"] == "PARKED", "records stay as they are"
    again = as_json("migrate")
    assert (again["done"], again["statements"]) == (False, [])
    assert "There is nothing to do." in call("migrate", "-o", "table").stdout


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_person_may_say_no_and_then_yes(folder: Path) -> None:
    code, seen = on_a_terminal(folder, "migrate", typed=b"n\n")
    assert (code, list(folder.iterdir())) == (1, [])
    assert f"Execute these {len(schema.statements(0))} statements?".encode() in seen
    code, seen = on_a_terminal(folder, "migrate", typed=b"y\n")
    assert (code, version()) == (0, schema.LATEST)
    assert f"migrated: version {schema.LATEST}".encode() in seen


@pytest.mark.parametrize("words", [("ls",), ("show", "k"), ("audit",), ("doctor",), ("forget", "k", "--yes")], ids=str)
def test_other_commands_never_migrate_but_say_what_does(old: Path, words: tuple[str, ...]) -> None:
    before = fingerprint(old)
    result = call(*words)
    assert result.exit_code == Exit.BROKEN
    assert "has schema version 1" in line(result)
    assert "onceward migrate" in line(result)
    assert fingerprint(old) == before


def test_a_missing_file_is_created_by_migrate_and_not_by_a_read(folder: Path) -> None:
    assert "no tables yet" in call("migrate", "--dry-run", "-o", "table").stdout
    assert call("migrate", "--sql").stdout.count("CREATE TABLE") == 7
    assert call("migrate").exit_code == Exit.REFUSED
    assert list(folder.iterdir()) == []
    assert call("migrate", "--yes").exit_code == 0
    assert as_json("ls") == []


def test_a_schema_that_demands_a_newer_reader_is_one_line_and_left_alone(old: Path) -> None:
    with closing(sqlite3.connect("onceward.db")) as raw, raw:
        raw.execute("UPDATE onceward_meta SET value = 99")
    before = fingerprint(old)
    for words in ((), ("--dry-run",), ("--sql",), ("--yes",)):
        result = call("migrate", *words)
        assert result.exit_code == Exit.BROKEN
        assert f"has schema version 99; this Onceward supports {schema.LATEST} and must not use it" in line(result)
        assert result.stdout == ""
    assert fingerprint(old) == before


def test_a_newer_schema_that_lets_us_work_beside_it_needs_nothing(old: Path) -> None:
    assert call("migrate", "--yes").exit_code == 0
    with closing(sqlite3.connect("onceward.db")) as raw, raw:
        raw.execute("UPDATE onceward_meta SET value = 99 WHERE name = 'schema_version'")
    result = call("migrate", "-o", "table")
    assert result.exit_code == 0
    assert "version 99 (newer than this Onceward" in result.stdout
    assert "There is nothing to do." in result.stdout
    assert version() == 99, "never set back"
    assert len(as_json("ls")) == 1


@pytest.mark.parametrize("store", ["memory://", "sqlite://:memory:"])
def test_an_in_process_store_has_nothing_to_migrate(store: str) -> None:
    for words in ((), ("--dry-run",), ("--sql",), ("--yes",)):
        result = call("migrate", "--store", store, "-o", "table", *words)
        assert result.exit_code == 0
        assert "here is nothing to do." in result.stdout


def test_dry_run_and_sql_exclude_each_other() -> None:
    assert call("migrate", "--dry-run", "--sql").exit_code == Exit.USAGE


def test_another_programs_database_gets_our_tables_only_on_request(folder: Path) -> None:
    with closing(sqlite3.connect("onceward.db")) as raw, raw:
        raw.execute("CREATE TABLE theirs (x)")
    before = fingerprint(folder)
    assert "no tables yet" in call("migrate", "--dry-run", "-o", "table").stdout
    assert fingerprint(folder) == before
    assert call("migrate", "--yes").exit_code == 0
    with Once("sqlite:///onceward.db") as once:
        once.run("k", str)
    with closing(sqlite3.connect("onceward.db")) as raw:
        assert raw.execute("SELECT count(*) FROM theirs").fetchone() == (0,)


def test_a_file_that_is_not_a_database_is_one_line(folder: Path) -> None:
    (folder / "onceward.db").write_bytes(b"certainly not a database " * 100)
    for words in ((), ("--dry-run",), ("--sql",), ("--yes",)):
        result = call("migrate", *words)
        assert result.exit_code == Exit.BROKEN
        assert "not a SQLite database" in line(result)


@pytest.mark.finding("N29")
def test_sql_for_a_new_database_needs_no_database(folder: Path) -> None:
    script = call("migrate", "--sql", "--dialect", "sqlite").stdout
    assert list(folder.iterdir()) == []
    with closing(sqlite3.connect("onceward.db")) as database:
        database.executescript(script)
    assert version() == schema.LATEST
    with Once("sqlite:///onceward.db") as once:
        assert once.run("a", lambda: 1) == 1
    script = call("migrate", "--sql", "--dialect", "postgresql").stdout
    assert "CREATE TABLE onceward_records (" in script


@pytest.mark.finding("N29")
def test_sql_of_a_server_that_cannot_be_reached_is_that_for_a_new_database() -> None:
    url = "postgresql://nobody@127.0.0.1:1/shop?schema=shop"
    for words in (("--sql",), ("--sql", "--dialect", "postgresql")):
        result = call("migrate", *words, "--store", url)
        assert result.exit_code == 0
        assert 'CREATE TABLE "shop".onceward_records (' in result.stdout
        assert result.stdout.endswith("COMMIT;\n")
        assert ("for a new database" in result.stderr) is (len(words) == 1)


def test_a_dialect_without_sql_is_a_mistake() -> None:
    result = call("migrate", "--dialect", "sqlite")
    assert result.exit_code == Exit.USAGE
    assert "--dialect needs --sql" in result.stderr
