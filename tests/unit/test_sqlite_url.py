"""From a URL to a file."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path
from urllib.parse import quote

import pytest

from onceward.errors import ConfigurationError, StoreBroken, StoreUnavailable
from onceward.protocol.requests import Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.registry import open_store
from onceward.stores.sqlite import SQLiteStore, from_url
from tests.raw_sqlite import run_on
from tests.unit.sqlite_calls import acquire, claim

NORMAL = 1  # SQLite's number for this level


def synchronous(cursor: sqlite3.Cursor) -> int:
    return int(cursor.execute("PRAGMA synchronous").fetchall()[0][0])


@pytest.mark.parametrize(
    "name", ["plain.db", "with space.db", "what?.db", "one#two.db", "100%.db", "ünï.db", ":memory:x"]
)
def test_a_percent_encoded_path_leads_to_exactly_that_file(tmp_path: Path, name: str) -> None:
    store = from_url(f"sqlite:///{quote(str(tmp_path / name))}")
    run(store.open(ThreadRuntime()))
    assert (tmp_path / name).is_file()
    acquire(store, "a")
    same = from_url(store.name)
    run(same.open(ThreadRuntime()))
    assert claim(same, "a", b"another").verdict is Verdict.RUNNING, "the name is a URL of the same store"
    run(same.close())
    run(store.close())


def test_three_slashes_are_relative_and_resolved_immediately_four_are_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = from_url("sqlite:///sub.db")
    monkeypatch.chdir("/")
    run(store.open(ThreadRuntime()))
    assert (tmp_path / "sub.db").is_file()
    run(store.close())
    assert from_url("sqlite:////somewhere/x.db").name == "sqlite:////somewhere/x.db"


def test_open_store_knows_sqlite(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db?synchronous=normal")
    assert isinstance(store, SQLiteStore)
    run(store.open(ThreadRuntime()))
    assert run_on(store, synchronous) == NORMAL
    run(store.close())
    assert isinstance(open_store("sqlite://:memory:"), SQLiteStore)


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("sqlite:///x.db?sync=NORMAL", "synchronous"),
        ("sqlite:///x.db?synchronous=OFF", "FULL"),
        ("sqlite:///x.db?synchronous=FULL&synchronous=NORMAL", "synchronous"),
        ("sqlite:///x.db?nonsense", "synchronous=NORMAL"),
        ("sqlite:///x.db#part", "%23"),
        ("sqlite:///", "sqlite:///relative.db"),
        ("sqlite://", "sqlite:///relative.db"),
        ("sqlite://x.db", "sqlite:///relative.db"),
        ("sqlite://host/x.db", "sqlite:///relative.db"),
        ("sqlite:x.db", "sqlite:///relative.db"),
        ("sqlite:///a%00b", "sqlite:///relative.db"),
        ("sqlite:///:memory:", "sqlite://:memory:"),
        ("sqlite://:memory:?mode=ro", "synchronous"),
    ],
)
def test_a_url_that_cannot_work_is_refused_and_the_error_names_the_cure(url: str, cure: str) -> None:
    with pytest.raises(ConfigurationError, match="→") as caught:
        from_url(url)
    assert cure in (caught.value.hint or "")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="names no file"):
        SQLiteStore(path)


@pytest.mark.fault("F34")
def test_a_pickled_store_is_its_settings_and_nothing_else(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db", synchronous="NORMAL", migrate=False)
    other = pickle.loads(pickle.dumps(store))
    assert other is not store
    assert other.name == store.name
    with pytest.raises(StoreUnavailable, match="not open"):
        claim(other, "a")
    with pytest.raises(StoreBroken):
        run(other.open(ThreadRuntime()))
    run(store.migrate(ThreadRuntime()))
    run(other.open(ThreadRuntime()))
    assert run_on(other, synchronous) == NORMAL
    run(other.close())
    with pytest.raises(ConfigurationError, match="one process"):
        pickle.dumps(SQLiteStore(":memory:"))
