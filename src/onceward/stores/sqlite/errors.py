"""What SQLite's errors mean to somebody who only wants to know whether to wait, to make room or to call for help."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from onceward.errors import ConfigurationError, OncewardError, StoreBroken, StoreError, StoreFull, StoreUnavailable

Meaning = tuple[type[StoreError], str, str]

BUSY: Meaning = (
    StoreUnavailable,
    "another writer holds the file for longer than this call may wait",
    "keep transactions on this file short",
)
BROKEN_FILE: Meaning = (StoreBroken, "the file is damaged", "restore it from a backup; until then nothing is claimed")
WRONG_SCHEMA: Meaning = (StoreBroken, "the tables of Onceward are not what they should be", "open the store again")
FULL: Meaning = (StoreFull, "there is no room on the disk; nothing was written", "make room, or purge")
INPUT_OUTPUT: Meaning = (StoreUnavailable, "the disk reported an error", "look into the system's log")

MEANINGS: dict[int, Meaning] = {
    sqlite3.SQLITE_BUSY: BUSY,
    sqlite3.SQLITE_LOCKED: BUSY,
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_IOERR: INPUT_OUTPUT,
    sqlite3.SQLITE_NOLFS: INPUT_OUTPUT,
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, "there is no memory left", "the call may be repeated"),
    sqlite3.SQLITE_INTERRUPT: (
        StoreUnavailable,
        "the call took longer than it may",
        "ask for less, or allow more time",
    ),
    sqlite3.SQLITE_CORRUPT: BROKEN_FILE,
    sqlite3.SQLITE_NOTADB: (StoreBroken, "the file is not a SQLite database", "check the path in the store's URL"),
    sqlite3.SQLITE_READONLY: (
        StoreBroken,
        "the file or its directory is read-only",
        "let this process write to the file and to its directory: SQLite keeps -wal and -shm beside the file",
    ),
    sqlite3.SQLITE_PERM: (StoreBroken, "access to the file is denied", "let this process read and write it"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreBroken,
        "the file cannot be opened",
        "its directory must exist, and this process must be allowed to write there",
    ),
    sqlite3.SQLITE_SCHEMA: WRONG_SCHEMA,
    sqlite3.SQLITE_CONSTRAINT: WRONG_SCHEMA,
    sqlite3.SQLITE_ERROR: WRONG_SCHEMA,
}
UNEXPECTED: Meaning = (StoreUnavailable, "SQLite refused", "look at the cause")


def explain(error: sqlite3.Error, name: str, path: str | None = None) -> OncewardError:
    """A fresh error of ours, to be raised `from` SQLite's."""
    code = primary(error)
    if code == sqlite3.SQLITE_AUTH:
        return ConfigurationError(
            f"{name}: the authorizer of this connection refuses Onceward ({error})",
            hint="let it allow the tables onceward_records and onceward_meta",
        )
    meaning = MEANINGS.get(code, UNEXPECTED)
    if meaning is INPUT_OUTPUT and path is not None and _no_room(path):
        meaning = FULL  # some of SQLite's files report a full disk as an I/O error
    kind, what, cure = meaning
    return kind(f"{name}: {what} ({error})", hint=cure)


def primary(error: sqlite3.Error) -> int:
    """The error's family; 0 where it does not come from the library (a connection that was closed)."""
    return extended(error) & 0xFF


def extended(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", None) or 0


def is_busy(error: sqlite3.Error) -> bool:
    return primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _no_room(path: str) -> bool:
    try:
        return os.statvfs(Path(path).parent).f_bavail == 0
    except (OSError, AttributeError):  # statvfs is missing on Windows
        return False
