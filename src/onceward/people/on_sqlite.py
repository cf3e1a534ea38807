"""The tables of people in a SQLite file. One writer at a time: each executes `BEGIN IMMEDIATE` before it reads."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from onceward.errors import RetryTransaction
from onceward.protocol.fork import call_around_fork
from onceward.runtime.threads import ThreadRuntime
from onceward.stores.caller_connection import driver_connection
from onceward.stores.sqlite import errors as faults
from onceward.stores.sqlite.connection import MEMORY
from onceward.stores.sqlite.joined import check_connection
from onceward.stores.sqlite.private_file import create_private_file
from onceward.stores.sqlite.url import absolute, checked_synchronous, name_of, parse

from . import schema
from .base_database import BaseDatabase
from .tables import Row

BUSY_TIMEOUT: Final = 30.0  # seconds that a writer waits for another one; an import commits more often than this
RETRY_DELAY: Final = 0.01  # seconds
FORK_TIMEOUT: Final = 2.0  # seconds that a fork may be held up by a call in another thread
CANDIDATES: Final = (
    "SELECT ?, number FROM (SELECT number FROM onceward_blocking WHERE block = ? ORDER BY number DESC LIMIT ?)"
)
BLOCKS_PER_QUERY: Final = 16  # about as many as one record has
WRITE_LOCK: Final = "UPDATE onceward_people_meta SET value = value WHERE name IS NULL"
SETTINGS: Final = (
    "PRAGMA wal_autocheckpoint = 8000",
    "PRAGMA cache_size = -65536",
    "PRAGMA temp_store = MEMORY",
)
PLACEHOLDERS: Final = schema.SQLITE | {"texts": "json_each(?) AS wanted"}


@cache
def _complete_sql(statement: str) -> str:
    return statement.format(**PLACEHOLDERS)


@cache
def _candidates_sql(blocks: int) -> str:
    return " UNION ALL ".join([CANDIDATES] * blocks)


class SQLiteTables:
    """One open transaction."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def run(self, statement: str, *values: Any) -> list[Row]:
        bound = [msgspec.json.encode(value).decode() if isinstance(value, list) else value for value in values]
        return self._cursor.execute(_complete_sql(statement), bound).fetchall()

    def run_many(self, statement: str, rows: Sequence[Row]) -> None:
        if rows:
            self._cursor.executemany(_complete_sql(statement), rows)

    def execute(self, statement: str, values: Sequence[Any]) -> list[Row]:
        return self._cursor.execute(statement, values).fetchall()

    def has_table(self, name: str) -> bool:
        return bool(self.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)))

    def candidates(self, blocks: Sequence[int], most: int) -> Iterable[tuple[int, int]]:
        for start in range(0, len(blocks), BLOCKS_PER_QUERY):
            chunk = blocks[start : start + BLOCKS_PER_QUERY]
            values = [value for block in chunk for value in (block, block, most)]
            yield from self._cursor.execute(_candidates_sql(len(chunk)), values).fetchall()

    def allocate_numbers(self, count: int) -> Sequence[int]:
        self.run("UPDATE onceward_people_meta SET value = CAST(value AS INTEGER) + ? WHERE name = 'numbers'", count)
        [(last,)] = self.run("SELECT CAST(value AS INTEGER) FROM onceward_people_meta WHERE name = 'numbers'")
        return range(last - count + 1, last + 1)

    def lock_keys(self, keys: Iterable[int]) -> bool:  # noqa: ARG002 (the write lock covers all keys)
        """Do nothing: this transaction has the write lock, so no other writer decides about anything."""
        return False

    def lock_all(self) -> None:
        """Do nothing, as in `lock_keys`."""

    def lock_people(self, people: Sequence[str]) -> None:
        """Do nothing, as in `lock_keys`."""


class SQLiteDatabase(BaseDatabase[sqlite3.Connection]):
    """The tables in a file, or in memory."""

    begin = "BEGIN IMMEDIATE"
    begin_reading = "BEGIN"
    driver_error = sqlite3.Error
    first_meta = {"version": schema.VERSION, "numbers": "0"}  # noqa: RUF012 (never changed)

    def __init__(self, url: str) -> None:
        super().__init__()
        path, settings = parse(url)
        self._path = path if path == MEMORY else absolute(path)
        self._synchronous = checked_synchronous(settings.get("synchronous", "FULL"))
        self.name = name_of(self._path)
        self._file: os.stat_result | None = None
        _databases.add(self)

    @property
    def connection(self) -> sqlite3.Connection:
        """The driver's connection."""
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        """Open the connection, with retries: if several processes open the file, SQLite fails some without waiting."""
        deadline = time.monotonic() + BUSY_TIMEOUT
        while True:
            try:
                return self._connect()
            except sqlite3.OperationalError as error:
                if not faults.is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_DELAY)

    def _tables(self, connection: sqlite3.Connection) -> SQLiteTables:
        return SQLiteTables(connection.cursor())

    def _is_open(self, connection: sqlite3.Connection) -> bool:
        return connection.in_transaction

    def _commit(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("COMMIT")

    @contextmanager
    def joined(self, connection: Any) -> Iterator[SQLiteTables]:
        """Join the caller's transaction. If the block fails, its changes are undone; nothing is committed here."""
        with self._lock:
            _ = self.connection  # creates the tables, outside of the caller's transaction
        theirs = driver_connection(connection, ThreadRuntime())
        check_connection(theirs, self._file, self.name)
        text_factory, theirs.text_factory = theirs.text_factory, str
        cursor = sqlite3.Cursor(theirs)
        try:
            with self._explained():
                cursor.execute(WRITE_LOCK if theirs.in_transaction else "BEGIN IMMEDIATE")
                cursor.execute("SAVEPOINT onceward_people")
                try:
                    yield SQLiteTables(cursor)
                except BaseException:
                    if theirs.in_transaction:
                        cursor.execute("ROLLBACK TO onceward_people")
                        cursor.execute("RELEASE onceward_people")
                    raise
                cursor.execute("RELEASE onceward_people")
        finally:
            theirs.text_factory = text_factory
            cursor.close()

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    # ── fork: a child that inherits an open connection inherits SQLite's bookkeeping of the parent's locks ──────

    def before_fork(self, deadline: float) -> bool:
        """Close the connection, so that the child does not inherit it. Return whether our lock was acquired.

        If it was, it stays acquired until the fork is complete.
        """
        if not self._lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
            return False
        if self._connection is not None and not self._connection.in_transaction and self._path != MEMORY:
            self._connection.close()
            self._connection = None
        return True

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        if self._connection is not None and self._path != MEMORY:
            _abandoned.append(self._connection)  # the parent is in a transaction on it: closing it here would end that
            self._connection = None

    def _translate(self, error: sqlite3.Error) -> Exception:
        if faults.extended_code(error) == sqlite3.SQLITE_BUSY_SNAPSHOT:
            return RetryTransaction(
                "another transaction changed the database after your transaction had read from it",
                hint="roll back and retry; BEGIN IMMEDIATE avoids this",
            )
        return faults.explain(error, self.name, self._path)

    def _connect(self) -> sqlite3.Connection:
        create_private_file(self._path)
        connection = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            if self._path != MEMORY:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
            for setting in (*SETTINGS, f"PRAGMA synchronous = {self._synchronous}"):
                connection.execute(setting).fetchall()
            self._create_tables(connection, schema.SQLITE)
        except BaseException:
            connection.close()
            raise
        if self._path != MEMORY:
            self._file = Path(self._path).stat()
        return connection


_databases: weakref.WeakSet[SQLiteDatabase] = weakref.WeakSet()
_fork = threading.local()  # per thread, because two threads may fork at the same time
_abandoned: list[sqlite3.Connection] = []


def _before_fork() -> None:
    deadline = time.monotonic() + FORK_TIMEOUT
    _fork.databases = [one for one in tuple(_databases) if one.before_fork(deadline)]


def _after_fork_in_parent() -> None:
    for one in _fork.__dict__.pop("databases", ()):
        one.after_fork_in_parent()


def _after_fork_in_child() -> None:
    _fork.__dict__.clear()
    for one in tuple(_databases):
        one.after_fork_in_child()


call_around_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
