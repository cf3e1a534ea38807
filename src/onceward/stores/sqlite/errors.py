"""Translate SQLite's errors into ours, with a hint: wait, free disk space, or repair."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

from onceward.errors import (
    ConfigurationError,
    OncewardError,
    RecordBroken,
    StoreBroken,
    StoreError,
    StoreFull,
    StoreNotSetUp,
    StoreUnavailable,
)

Meaning = tuple[type[StoreError], str, str]

BUSY: Meaning = (
    StoreUnavailable,
    "another writer holds the file for longer than this call may wait",
    "keep transactions on this file short",
)
BROKEN_FILE: Meaning = (StoreBroken, "the file is damaged", "restore it from a backup; until then nothing is claimed")
WRONG_SCHEMA: Meaning = (StoreBroken, "Onceward's tables do not have the expected schema", "open the store again")
FULL: Meaning = (StoreFull, "the disk is full; nothing was written", "free disk space, or purge")
INPUT_OUTPUT: Meaning = (StoreUnavailable, "the disk reported an error", "check the system log")

MEANINGS: dict[int, Meaning] = {
    sqlite3.SQLITE_BUSY: BUSY,
    sqlite3.SQLITE_LOCKED: BUSY,
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_IOERR: INPUT_OUTPUT,
    sqlite3.SQLITE_NOLFS: INPUT_OUTPUT,
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, "there is no memory left", "the call may be repeated"),
    sqlite3.SQLITE_INTERRUPT: (
        StoreUnavailable,
        "the call exceeded its timeout",
        "request fewer records, or raise the timeout",
    ),
    sqlite3.SQLITE_CORRUPT: BROKEN_FILE,
    sqlite3.SQLITE_NOTADB: (StoreBroken, "the file is not a SQLite database", "check the path in the store's URL"),
    sqlite3.SQLITE_READONLY: (
        StoreBroken,
        "the file or its directory is read-only",
        "let this process write to the file and to its directory: SQLite creates -wal and -shm there",
    ),
    sqlite3.SQLITE_PERM: (StoreBroken, "access to the file is denied", "let this process read and write it"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreBroken,
        "the file cannot be opened",
        "it must be a file, and this process must be allowed to write to its directory",
    ),
    sqlite3.SQLITE_SCHEMA: WRONG_SCHEMA,
    sqlite3.SQLITE_CONSTRAINT: WRONG_SCHEMA,
    sqlite3.SQLITE_ERROR: WRONG_SCHEMA,
}
NOT_UTF_8 = "Could not decode to UTF-8"
"""The start of a message of the module `sqlite3`. The rest quotes content of the row, so it is not repeated."""

UNEXPECTED: Meaning = (StoreUnavailable, "SQLite raised an unexpected error", "see the cause of this exception")


def explain(error: sqlite3.Error, name: str, path: str | None = None) -> OncewardError:
    """Return the Onceward error for a SQLite error, to be raised `from` it."""
    code = primary_code(error)
    if code == sqlite3.SQLITE_AUTH:
        return ConfigurationError(
            f"{name}: the authorizer of this connection refuses Onceward ({error})",
            hint="let it allow the tables onceward_records and onceward_meta",
        )
    if code == sqlite3.SQLITE_CANTOPEN and path is not None and _lacks_folder(path):
        folder = Path(path).absolute().parent
        return StoreNotSetUp(f"{name}: there is no folder {folder} ({error})", hint="create it, or correct the URL")
    if is_not_utf_8(error):
        return RecordBroken(f"{name}: a row has text that is not UTF-8", hint="was it edited by hand?")
    meaning = MEANINGS.get(code, UNEXPECTED)
    if meaning is INPUT_OUTPUT and path is not None and _disk_is_full(path):
        meaning = FULL  # some of SQLite's files report a full disk as an I/O error
    error_class, message, hint = meaning
    return error_class(f"{name}: {message} ({error})", hint=hint)


def primary_code(error: sqlite3.Error) -> int:
    """Return the primary result code; 0 if the error does not come from SQLite itself (a closed connection)."""
    return extended_code(error) & 0xFF


def extended_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", None) or 0


def is_not_utf_8(error: sqlite3.Error) -> bool:
    return extended_code(error) == 0 and str(error).startswith(NOT_UTF_8)


def is_busy(error: sqlite3.Error) -> bool:
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _lacks_folder(path: str) -> bool:
    try:
        return not stat.S_ISDIR(Path(path).parent.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # it may exist
        return False


def _disk_is_full(path: str) -> bool:
    try:
        return os.statvfs(Path(path).parent).f_bavail == 0
    except (OSError, AttributeError):  # statvfs is missing on Windows
        return False
