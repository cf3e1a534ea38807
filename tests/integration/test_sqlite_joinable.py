"""Which connections can be joined, and how their settings and ours do not affect each other."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward.errors import ConfigurationError, StoreFull
from onceward.protocol.requests import ClaimRequest, Complete, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.joined import SQLiteJoined
from tests.integration.sqlite_joining import ask, complete, connection, do, effects, joined, path, store
from tests.integration.sqlite_workers import ident, request
from tests.raw_sqlite import run_on

__all__ = ["connection", "joined", "path", "store"]  # fixtures, re-exported so that pytest finds them


@pytest.mark.parametrize("isolation", ["", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_without_an_open_transaction_one_is_begun_for_the_caller_to_commit(
    store: SQLiteStore, connection: sqlite3.Connection, path: Path, isolation: str
) -> None:
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    theirs = connect(path, isolation_level=isolation)
    joined = store.join(theirs, ThreadRuntime())
    do(joined, theirs)
    assert effects(path) == []
    theirs.commit()
    assert effects(path) == ["order 7"]
    theirs.close()


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SAVEPOINT theirs"])
def test_a_connection_that_commits_by_itself_needs_an_open_transaction(
    store: SQLiteStore, connection: sqlite3.Connection, path: Path, begin: str
) -> None:
    theirs = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
        store.join(theirs, ThreadRuntime())
    theirs.execute(begin)
    joined = store.join(theirs, ThreadRuntime())
    do(joined, theirs)
    theirs.execute("COMMIT")
    assert effects(path) == ["order 7"]
    with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
        run(joined.claim([request("b", None)], timeout=5))
    with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
        run(joined.begin(timeout=5))
    theirs.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with Python 3.12")
def test_the_autocommit_attribute_of_python_3_12(
    store: SQLiteStore, connection: sqlite3.Connection, path: Path
) -> None:
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    by_itself = connect(path, autocommit=True)
    with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
        store.join(by_itself, ThreadRuntime())
    by_itself.close()
    always_open = connect(path, autocommit=False)
    do(store.join(always_open, ThreadRuntime()), always_open)
    assert effects(path) == []
    always_open.commit()
    assert effects(path) == ["order 7"]
    always_open.close()


def test_only_a_connection_to_the_stores_own_file_can_be_joined(store: SQLiteStore, path: Path, tmp_path: Path) -> None:
    for place in (":memory:", tmp_path / "other.db"):
        other = sqlite3.connect(place)
        with pytest.raises(ConfigurationError, match="cannot commit together"):
            store.join(other, ThreadRuntime())
        other.close()
    attached = sqlite3.connect(tmp_path / "other.db")
    attached.execute("ATTACH ? AS ours", (str(path),))
    with pytest.raises(ConfigurationError, match="cannot commit together"):
        store.join(attached, ThreadRuntime())
    attached.close()
    (tmp_path / "link.db").symlink_to(path)
    same = sqlite3.connect(tmp_path / "link.db")
    assert run(store.join(same, ThreadRuntime()).claim([request("a", None)], timeout=5))[0].verdict is Verdict.ACQUIRED
    same.rollback()
    same.close()


def test_an_object_that_is_not_a_sqlite3_connection_is_refused_by_name(store: SQLiteStore) -> None:
    with pytest.raises(ConfigurationError, match=r"builtins\.str.*sqlite3\.Connection"):
        store.join("sqlite:///x.db", ThreadRuntime())


def test_a_store_that_was_never_opened_makes_no_tables_in_the_users_transaction(path: Path) -> None:
    theirs = sqlite3.connect(path)
    with pytest.raises(ConfigurationError, match="open the store first"):
        SQLiteStore(path).join(theirs, ThreadRuntime())
    assert theirs.execute("SELECT count(*) FROM sqlite_master").fetchall() == [(0,)]
    theirs.close()


def test_a_closed_connection_or_one_of_another_thread_is_refused_with_the_reason(
    store: SQLiteStore, path: Path
) -> None:
    theirs = sqlite3.connect(path)
    errors: list[Exception] = []

    def elsewhere() -> None:
        try:
            store.join(theirs, ThreadRuntime())
        except ConfigurationError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "thread" in str(errors[0])
    theirs.close()
    with pytest.raises(ConfigurationError, match="closed"):
        store.join(theirs, ThreadRuntime())


# ── their settings and ours ─────────────────────────────────────────────────────────────────────────────────────


class OddCursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> OddCursor:
        raise AssertionError("their cursor class is not used")


class OddConnection(sqlite3.Connection):
    def cursor(self, *arguments: Any, **named: Any) -> Any:
        return super().cursor(OddCursor)


def test_factories_converters_and_cursor_classes_of_the_user_disturb_nothing_and_stay_as_they_were(
    store: SQLiteStore, path: Path
) -> None:
    for kind in ("TEXT", "INTEGER", "BLOB"):
        sqlite3.register_converter(kind, lambda value: pytest.fail(f"their converter saw {value!r}"))
    try:
        theirs = sqlite3.connect(
            path, factory=OddConnection, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES
        )
        theirs.row_factory = sqlite3.Row
        theirs.text_factory = bytes
        joined = store.join(theirs, ThreadRuntime())
        asked = ClaimRequest(
            ident("a"), "scope", "käse\0", b"n", None, note={"ü": "ö"}, arguments={"x": "1"}, owner="me"
        )
        first = run(joined.claim([asked], timeout=5))[0].record
        assert first is not None
        second = run(joined.claim([asked], timeout=5))[0].record
        assert second == first
        assert run(joined.settle([Complete(first.id, first.token, b"n")], timeout=5))[0].verdict is Verdict.OK
        assert theirs.row_factory is sqlite3.Row
        assert theirs.text_factory is bytes
        theirs.rollback()
        theirs.close()
    finally:
        for kind in ("TEXT", "INTEGER", "BLOB"):
            sqlite3.converters.pop(kind)


def test_no_cursor_stays_open_and_the_busy_timeout_is_as_it_was(
    joined: SQLiteJoined, connection: sqlite3.Connection, store: SQLiteStore
) -> None:
    connection.execute("PRAGMA busy_timeout = 1234")
    do(joined, connection)
    connection.commit()
    assert connection.execute("PRAGMA busy_timeout").fetchall() == [(1234,)]
    ask(joined)
    connection.rollback()
    connection.execute("DROP TABLE effects")  # refused while a statement is still running
    connection.commit()
    assert run_on(store, lambda cursor: cursor.execute("SELECT 1").fetchall()) == [(1,)]


def test_an_authorizer_that_refuses_us_is_named(store: SQLiteStore, connection: sqlite3.Connection) -> None:
    joined = store.join(connection, ThreadRuntime())

    def deny(action: int, first: str | None, *_: Any) -> int:
        return sqlite3.SQLITE_DENY if first == "onceward_records" else sqlite3.SQLITE_OK

    connection.set_authorizer(deny)
    with pytest.raises(ConfigurationError, match="authorizer"):
        ask(joined)
    connection.set_authorizer(None)
    connection.rollback()
    assert ask(joined).verdict is Verdict.ACQUIRED


def test_a_full_file_rolls_back_what_sqlite_rolls_back_and_says_so(
    joined: SQLiteJoined, connection: sqlite3.Connection
) -> None:
    record = ask(joined).record
    assert record is not None
    pages = connection.execute("PRAGMA page_count").fetchall()[0][0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull) as caught:
        complete(joined, record, b"x" * 1_000_000)
    notes = getattr(caught.value, "__notes__", [])
    assert bool(notes) is not connection.in_transaction
    connection.rollback()
