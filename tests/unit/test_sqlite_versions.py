"""Two versions of Onceward on one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.errors import StoreBroken, VersionSkew
from onceward.protocol.requests import Renewal, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore, schema
from onceward.testing.clock import FakeClock
from tests.unit.sqlite_calls import (
    LEASE,
    acquire,
    change,
    claim,
    complete,
    look,
    made,
)
from tests.unit.sqlite_fixtures import path, store

__all__ = ["path", "store"]  # fixtures, imported here so that pytest finds them


NEXT = schema.LATEST + 1
"""The version of an Onceward that does not exist yet."""

A_LATER_ONE = "ALTER TABLE onceward_records ADD COLUMN flavour TEXT\n;\nCREATE TABLE onceward_later (flavour TEXT)"


@pytest.mark.fault("F67")
def test_columns_that_a_newer_version_has_added_survive_our_writes(
    store: SQLiteStore, path: Path, clock: FakeClock
) -> None:
    mine = acquire(store, "a")
    change(
        path,
        "ALTER TABLE onceward_records ADD COLUMN flavour TEXT",
        "UPDATE onceward_records SET flavour = 'vanilla'",
        f"UPDATE onceward_meta SET value = {NEXT} WHERE name = 'schema_version'",
    )
    run(store.renew([Renewal(mine.id, mine.token, b"n", LEASE)], timeout=5))
    complete(store, mine, lasting=1)
    clock.advance("1d")
    assert claim(store, "a", b"next").verdict is Verdict.ACQUIRED
    run(store.forget([mine.id], force=True, timeout=5))
    assert look(path, "SELECT state, flavour FROM onceward_records") == [("FREE", "vanilla")]
    clone = store.clone()
    run(clone.open(ThreadRuntime()))  # min_reader allows it
    assert look(path, "SELECT value FROM onceward_meta WHERE name = 'schema_version'") == [(NEXT,)], "never set back"
    run(clone.close())


@pytest.mark.fault("F67")
def test_a_schema_that_demands_a_newer_reader_is_left_alone(path: Path) -> None:
    made(path)
    change(path, "UPDATE onceward_meta SET value = 99")
    with pytest.raises(VersionSkew, match="99"):
        made(path)


@pytest.mark.fault("F67")
def test_records_that_demand_a_newer_reader_are_left_alone(store: SQLiteStore, path: Path, clock: FakeClock) -> None:
    mine = acquire(store, "a")
    complete(store, acquire(store, "b"), lasting=1)
    change(path, "UPDATE onceward_records SET min_reader = 2")
    clock.advance("90d")
    before = look(path, "SELECT * FROM onceward_records ORDER BY id")
    assert claim(store, "a", b"other").verdict is Verdict.SKEW
    assert complete(store, mine).verdict is Verdict.SKEW
    assert run(store.renew([Renewal(mine.id, mine.token, b"n", LEASE)], timeout=5))[0].verdict is Verdict.SKEW
    assert run(store.forget([mine.id], force=True, timeout=5))[0].verdict is Verdict.SKEW
    assert run(store.purge(10, timeout=5)) == 0
    assert look(path, "SELECT * FROM onceward_records ORDER BY id") == before


@pytest.mark.fault("F67")
def test_an_older_schema_is_migrated_at_open_in_one_transaction_or_not_at_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(path)
    added = "ALTER TABLE onceward_records ADD COLUMN flavour TEXT"
    known = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", (*known, f"{added}\n;\nCREATE TABLE broken ("))
    monkeypatch.setattr(schema, "LATEST", NEXT)
    with pytest.raises(StoreBroken, match="migrate=True"):
        run(SQLiteStore(path, migrate=False).open(ThreadRuntime()))
    with pytest.raises(StoreBroken):
        made(path)
    assert "flavour" not in [row[1] for row in look(path, "PRAGMA table_info(onceward_records)")]
    monkeypatch.setattr(schema, "MIGRATIONS", (*known, added))
    made(path)
    made(path)
    assert "flavour" in [row[1] for row in look(path, "PRAGMA table_info(onceward_records)")]
    assert look(path, "SELECT value FROM onceward_meta WHERE name = 'schema_version'") == [(NEXT,)]


@pytest.mark.fault("F67")
def test_a_newer_version_that_was_faster_at_migrating_is_not_set_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(path)
    change(path, "UPDATE onceward_meta SET value = 7")
    versions = [0]  # what we read before the other version migrated
    seen = schema._version
    monkeypatch.setattr(schema, "_version", lambda cursor: versions.pop() if versions else seen(cursor))
    with pytest.raises(VersionSkew, match="7"):
        made(path)
    assert look(path, "SELECT value FROM onceward_meta") == [(7,), (7,)]


def test_a_new_file_without_migrate_is_refused_with_the_cure(path: Path) -> None:
    with pytest.raises(StoreBroken, match="migrate=True"):
        run(SQLiteStore(path, migrate=False).open(ThreadRuntime()))


def test_the_tables_live_beside_those_of_the_user(path: Path) -> None:
    change(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    made(path)
    assert look(path, "SELECT id FROM orders") == [(1,)]
    tables = {row[0] for row in look(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    ours = {"onceward_audit", "onceward_marks", "onceward_meta", "onceward_latest", "onceward_records"}
    assert tables == {"orders", "onceward_counters", "onceward_history", *ours}


@pytest.fixture
def older(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of this version, with a record, opened by an Onceward that has one more migration."""
    store = SQLiteStore(path)
    run(store.open(ThreadRuntime()))
    acquire(store, "k")
    run(store.close())
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, A_LATER_ONE))
    monkeypatch.setattr(schema, "LATEST", NEXT)
    return path


@pytest.mark.fault("F67")
def test_reading_the_schema_creates_nothing_and_reports_what_is_missing(path: Path) -> None:
    store = SQLiteStore(path)
    absent = run(store.schema(ThreadRuntime(), timeout=5))
    assert (absent.version, absent.latest, bool(absent.statements)) == (0, schema.LATEST, True)
    assert not path.exists()
    change(path, *absent.statements)  # as a user would by hand
    run(SQLiteStore(path, migrate=False).open(ThreadRuntime()))
    assert run(store.schema(ThreadRuntime(), timeout=5)).statements == ()


@pytest.mark.fault("F67")
def test_reading_an_older_schema_changes_nothing_and_reports_what_is_missing(older: Path) -> None:
    store, before = SQLiteStore(older), older.read_bytes()
    old = run(store.schema(ThreadRuntime(), timeout=5))
    assert (old.version, old.latest, old.min_reader) == (NEXT - 1, NEXT, 1)
    assert old.statements[:2] == tuple(A_LATER_ONE.split("\n;\n"))
    assert older.read_bytes() == before
    change(older, *old.statements)  # as a user would by hand
    run(SQLiteStore(older, migrate=False).open(ThreadRuntime()))
    assert run(store.schema(ThreadRuntime(), timeout=5)).statements == ()


def test_to_migrate_is_what_opening_does_and_may_be_repeated(older: Path) -> None:
    store = SQLiteStore(older, migrate=False)
    for _ in range(2):
        run(store.migrate(ThreadRuntime()))
        assert run(store.schema(ThreadRuntime(), timeout=5)).version == NEXT
    run(store.open(ThreadRuntime()))
    run(store.close())
    memory = SQLiteStore(":memory:")
    assert run(memory.schema(ThreadRuntime(), timeout=5)).statements == ()


@pytest.mark.fault("F60")
def test_the_schema_of_a_file_that_is_not_a_database_raises_our_error(path: Path) -> None:
    path.write_bytes(b"not a database " * 100)
    with pytest.raises(StoreBroken, match="not a SQLite database"):
        run(SQLiteStore(path).schema(ThreadRuntime(), timeout=5))


@pytest.mark.fault("F67")
def test_an_older_file_keeps_its_records_and_older_processes_may_use_it(older: Path) -> None:
    store = SQLiteStore(older)
    run(store.open(ThreadRuntime()))
    assert look(older, "SELECT key, state, flavour FROM onceward_records") == [("k", "PENDING", None)]
    run(store.close())
    assert look(older, "SELECT name, value FROM onceward_meta ORDER BY name") == [
        ("min_reader", 1),  # so that a process that only knows version 1 continues to work
        ("schema_version", NEXT),
    ]
