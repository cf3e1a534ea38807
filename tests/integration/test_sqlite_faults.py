"""Every way in which a real SQLite file can fail, and the typed error for each (F60)."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from onceward import AsyncOnce, Once
from onceward.errors import StoreBroken, StoreError, StoreFull, StoreNotSetUp, StoreUnavailable
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, Complete, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite import connection as link
from onceward.stores.sqlite import errors as faults
from tests.integration.sqlite_joining import path, store
from tests.integration.sqlite_workers import claim, ident, opened, request
from tests.integration.test_sqlite_processes import ask
from tests.raw_sqlite import run_on

__all__ = ["path", "store"]  # fixtures, re-exported so that pytest finds them

pytestmark = pytest.mark.fault("F60")


def complete(store: SQLiteStore, mine: Record, result: bytes) -> Answer:
    return run(store.settle([Complete(mine.id, mine.token, mine.nonce, result=result)], timeout=5))[0]


def pages(store: SQLiteStore, most: int | None = None) -> int:
    def limit(cursor: sqlite3.Cursor) -> int:
        if most is not None:
            cursor.execute(f"PRAGMA max_page_count = {most}").fetchall()
        return int(cursor.execute("PRAGMA page_count").fetchall()[0][0])

    return run_on(store, limit)


# ── busy ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_locked_file_is_unavailable_and_each_error_is_a_fresh_one_from_its_cause(
    store: SQLiteStore, path: Path
) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    caught = []
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="another writer holds the file") as error:
            run(store.claim([request("a")], timeout=0.01))
        assert isinstance(error.value.__cause__, sqlite3.OperationalError)
        caught.append(error.value)
    assert caught[0] is not caught[1]
    writer.close()
    assert claim(store, "a") is not None


def test_a_file_locked_while_it_is_opened_is_waited_for_and_then_unavailable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE t (x)")
    other.execute("BEGIN EXCLUSIVE")  # not yet in WAL mode: even readers are locked out
    monkeypatch.setattr(link, "OPEN_TIMEOUT", 0.05)
    with pytest.raises(StoreUnavailable, match="another writer"):
        opened(str(path))
    other.close()
    run(opened(str(path)).close())


def test_a_file_that_is_locked_for_a_moment_while_it_is_opened_is_opened_all_the_same(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE t (x)")
    other.execute("BEGIN EXCLUSIVE")
    soon = threading.Timer(0.05, other.execute, ["COMMIT"])
    soon.start()
    store = opened(str(path))
    soon.join()
    assert claim(store, "a") is not None
    run(store.close())
    other.close()


# ── full ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("B7")
def test_a_full_file_claims_nothing_and_works_again_once_there_is_room(store: SQLiteStore) -> None:
    mine = claim(store, "before")
    assert mine is not None
    pages(store, most=pages(store) + 2)
    with pytest.raises(StoreFull, match="nothing was written"):
        complete(store, mine, b"x" * 100_000)
    with pytest.raises(StoreFull):
        run(store.claim([request(n) for n in range(500)], timeout=5))
    assert all(answer.record is None for answer in run(store.read([ident(n) for n in range(500)], timeout=5)))
    assert run(store.read([mine.id], timeout=5))[0].record == mine
    pages(store, most=1_000_000)
    assert complete(store, mine, b"x" * 100_000).verdict is Verdict.OK


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place)]
    if mount is None or os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_claims_nothing_and_works_again_once_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 100_000)
    store = opened(str(small_disk / "once.db"))
    acquired = []
    with pytest.raises(StoreFull):
        for word in range(10_000):
            mine = claim(store, word)
            assert mine is not None
            acquired.append(mine)
            complete(store, mine, b"x" * 2_000)
    assert len(acquired) > 10
    ballast.unlink()
    found = run(store.read([mine.id for mine in acquired], timeout=5))
    assert all(answer.verdict is Verdict.OK for answer in found), "what was acknowledged is there"
    assert claim(store, "after") is not None
    run(store.close())


def test_a_disk_that_fails_is_unavailable(path: Path) -> None:
    kind, message = ask("with_a_small_file_limit", path)["error"]
    assert kind == "StoreUnavailable"
    assert "the disk reported an error" in message


# ── broken ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_text_file_is_not_a_database_and_is_left_as_it_is(path: Path) -> None:
    path.write_text("Dear diary, " * 1_000)
    with pytest.raises(StoreBroken, match="not a SQLite database") as caught:
        opened(str(path))
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    assert path.read_text().startswith("Dear diary")


def test_a_damaged_file_is_broken_and_never_a_reason_to_run_again(path: Path) -> None:
    store = opened(str(path))
    for word in range(300):
        claim(store, word)
    run(store.close())
    size = path.stat().st_size
    with path.open("r+b") as file:  # the store is closed: closing this file drops no locks
        file.seek(4_096)
        file.write(b"\xa5" * (size - 4_096))
    store = SQLiteStore(path)
    with pytest.raises(StoreBroken, match=r"damaged|Onceward's tables"):
        run(store.open(ThreadRuntime()))
        run(store.claim([request(7)], timeout=5))
    run(store.close())


def test_missing_tables_are_a_broken_store(store: SQLiteStore, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE onceward_records")
    connection.close()
    with pytest.raises(StoreBroken, match="Onceward's tables"):
        claim(store, "a")


@pytest.fixture
def public_place() -> Iterator[Path]:
    """Pytest's own folders are closed to other users."""
    place = Path(tempfile.mkdtemp(prefix="onceward-"))
    place.chmod(0o755)
    yield place
    place.chmod(0o755)
    shutil.rmtree(place)


@pytest.mark.parametrize("exists", [True, False])
def test_a_read_only_file_or_directory_is_broken_and_the_hint_says_what_to_allow(
    public_place: Path, exists: bool
) -> None:
    path = public_place / "once.db"
    if exists:
        run(opened(str(path)).close())
        path.chmod(0o444)
    public_place.chmod(0o555)
    said = ask("without_rights", path, 65_534)
    assert said["error"] == "StoreBroken"
    assert "→" in said["message"]
    assert "director" in said["message"]


def test_a_connection_that_turns_read_only_is_broken(store: SQLiteStore) -> None:
    run_on(store, lambda cursor: cursor.execute("PRAGMA query_only = 1").fetchall())
    with pytest.raises(StoreBroken, match="read-only"):
        claim(store, "a")


def test_a_directory_in_place_of_the_file_is_broken_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StoreBroken, match="cannot be opened"):
        opened(str(tmp_path))


@pytest.mark.finding("N20")
@pytest.mark.parametrize("on_store_down", ["raise", "run"])
@pytest.mark.parametrize("place", ["missing", "missing/deeper", "file"])
def test_a_missing_folder_is_not_set_up_and_nothing_runs(tmp_path: Path, place: str, on_store_down: Any) -> None:
    (tmp_path / "file").touch()
    folder, ran = tmp_path / place, Mock()
    once = Once(f"sqlite:///{folder}/once.db", on_store_down=on_store_down)
    with pytest.raises(StoreNotSetUp) as raised:
        once.run("a", ran)
    assert f"there is no folder {folder}" in str(raised.value)
    assert raised.value.hint == "create it, or correct the URL"
    ran.assert_not_called()
    (tmp_path / "file").unlink()
    folder.mkdir(parents=True)
    once.run("a", ran)
    ran.assert_called_once()
    once.close()


@pytest.mark.finding("N20")
async def test_an_async_client_without_its_folder_runs_nothing(tmp_path: Path) -> None:
    ran = AsyncMock()
    async with AsyncOnce(f"sqlite:///{tmp_path}/missing/once.db", on_store_down="run") as once:
        with pytest.raises(StoreNotSetUp, match="there is no folder"):
            await once.run("a", ran)
    ran.assert_not_called()


def test_a_file_system_without_write_ahead_logging_is_broken_and_the_hint_names_network_file_systems() -> None:
    without_a_file = link.SQLiteConnection("", "sqlite:///x.db", "FULL", migrate=True)  # SQLite has no WAL for this one
    with pytest.raises(StoreBroken, match="network file systems"):
        without_a_file.open()


# ── replaced ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["deleted", "replaced", "log deleted", "log replaced"])
def test_a_claim_written_to_a_renamed_or_deleted_file_is_never_reported_as_acquired(
    store: SQLiteStore, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(link, "FILE_CHECK_INTERVAL_WRITING", -1.0)
    claim(store, "before")
    victim = path.with_name("once.db-wal") if how.startswith("log") else path
    if how.endswith("deleted"):
        victim.unlink()
    else:
        (tmp_path / "other").write_bytes(b"")
        (tmp_path / "other").replace(victim)
    for _ in range(2):
        with pytest.raises(StoreBroken, match="replaced or deleted"):
            claim(store, "a")
    monkeypatch.setattr(link, "FILE_CHECK_INTERVAL", -1.0)
    with pytest.raises(StoreBroken, match="replaced or deleted"):
        run(store.read([ident("before")], timeout=5))


def test_readers_check_the_file_once_a_second_and_writers_at_most_a_hundred_times(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look = link.SQLiteConnection.check_file

    def counted(self: link.SQLiteConnection) -> None:
        looks.append(1)
        look(self)

    claim(store, "a")
    monkeypatch.setattr(link.SQLiteConnection, "check_file", counted)
    monkeypatch.setattr(link, "FILE_CHECK_INTERVAL", 3600)
    monkeypatch.setattr(link, "FILE_CHECK_INTERVAL_WRITING", 3600)
    claim(store, "b")
    run(store.read([ident("a")], timeout=5))
    assert not looks
    monkeypatch.setattr(link, "FILE_CHECK_INTERVAL_WRITING", -1)  # over
    claim(store, "c")
    assert len(looks) == 1
    monkeypatch.setattr(link, "FILE_CHECK_INTERVAL", -1)
    run(store.read([ident("a")], timeout=5))
    assert len(looks) == 2


def test_a_store_that_is_opened_again_accepts_the_new_file(store: SQLiteStore, path: Path) -> None:
    run(store.close())
    path.unlink()
    run(store.open(ThreadRuntime()))
    assert claim(store, "a") is not None


# ── every code ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY_RECOVERY, StoreUnavailable),
        (sqlite3.SQLITE_LOCKED, StoreUnavailable),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable),
        (sqlite3.SQLITE_NOMEM, StoreUnavailable),
        (sqlite3.SQLITE_CORRUPT_INDEX, StoreBroken),
        (sqlite3.SQLITE_NOTADB, StoreBroken),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreBroken),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, StoreBroken),
        (sqlite3.SQLITE_PERM, StoreBroken),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, StoreBroken),
        (sqlite3.SQLITE_TOOBIG, StoreUnavailable),
        (None, StoreUnavailable),
    ],
)
def test_every_code_has_a_typed_error_that_names_the_store(code: int | None, kind: type[StoreError]) -> None:
    error = sqlite3.OperationalError("words of SQLite")
    if code is not None:
        error.sqlite_errorcode = code
    explained = faults.explain(error, "sqlite:///x.db", "/")
    assert type(explained) is kind
    assert "sqlite:///x.db" in str(explained)
    assert "words of SQLite" in str(explained)
    assert explained.hint
