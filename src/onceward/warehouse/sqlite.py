"""SQLite as a warehouse: a file for several processes of one machine, which load in turn. Needs no driver."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from onceward.errors import ConfigurationError, OncewardError, StoreBroken
from onceward.protocol.instants import moment
from onceward.stores.sqlite import errors as sqlite_errors
from onceward.stores.sqlite.connection import MEMORY
from onceward.stores.sqlite.private_file import create_private_file
from onceward.stores.sqlite.url import absolute, checked_synchronous, name_of, parse

from .base import SqlWarehouse
from .batch import RowBatch, Tuple
from .load import LOADS, check_columns, missing_unique_key, row_refused
from .table import ColumnType, Table, quoted
from .transaction import STAGING, Transaction, UpsertTransaction

T = TypeVar("T")

BUSY_TIMEOUT: Final = 30.0  # seconds that a load waits for another load
RETRY_DELAY: Final = 0.01  # seconds

TYPES: Final[dict[ColumnType, str]] = {
    "text": "TEXT",
    "integer": "INTEGER",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "time": "TEXT",
    "json": "TEXT",
}
"""A time is text in UTC of fixed length: it sorts correctly, and SQLite's functions can parse it."""

TEXT_TYPES: Final = ("char", "clob", "text", "blob")
"""If the column type contains none of these words, SQLite converts text that looks like a number to a number."""

CREATE_LOADS: Final = f"""
CREATE TABLE IF NOT EXISTS {LOADS} (
    load_id TEXT PRIMARY KEY, table_name TEXT NOT NULL, digest TEXT NOT NULL,
    given INTEGER NOT NULL, kept INTEGER NOT NULL, inserted INTEGER, updated INTEGER,
    loaded_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
)"""


class SQLiteWarehouse(SqlWarehouse):
    """One connection, used by one load at a time. A load of another process waits until this one is committed."""

    def __init__(self, url: str) -> None:
        path, settings = parse(url)
        self._path = path if path == MEMORY else absolute(path)
        self._synchronous = checked_synchronous(settings.get("synchronous", "FULL"))
        self.name = name_of(self._path)
        self._lock = threading.RLock()
        try:
            self.connection = self._connect()
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def _connect(self) -> sqlite3.Connection:
        """Connect. When openers race, SQLite fails some steps without waiting: those are retried here."""
        deadline = time.monotonic() + BUSY_TIMEOUT
        while True:
            create_private_file(self._path)
            connection = sqlite3.connect(
                self._path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
            )
            try:
                for statement in (
                    "PRAGMA journal_mode = WAL",
                    f"PRAGMA synchronous = {self._synchronous}",
                    CREATE_LOADS,
                ):
                    connection.execute(statement).fetchall()
                return connection
            except BaseException as error:
                connection.close()
                busy = isinstance(error, sqlite3.OperationalError) and sqlite_errors.is_busy(error)
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_DELAY)

    def prepare(self, table: Table) -> None:
        if "." in table.name:
            raise ConfigurationError(
                f"{table.name!r} has a schema, which SQLite does not support", hint="use a name without a dot"
            )
        columns = ", ".join(f'"{name}" {TYPES[kind]}' for name, kind in table.columns.items())

        create = f"CREATE TABLE IF NOT EXISTS {table.quoted} ({columns}, PRIMARY KEY ({quoted(table.key)}))"

        def work(transaction: Transaction) -> None:
            transaction.execute(create)
            _check(transaction, table)

        self._in_transaction(work, "BEGIN IMMEDIATE")

    def _write(self, table: Table, load_id: str | None, work: Callable[[Transaction], T]) -> T:
        try:
            return self._in_transaction(work, "BEGIN IMMEDIATE")
        except sqlite3.IntegrityError as error:
            raise row_refused(table, load_id, error) from error

    def _read(self, work: Callable[[Transaction], T]) -> T:
        return self._in_transaction(work, "BEGIN")

    def close(self) -> None:
        with self._lock:
            self.connection.close()

    def _in_transaction(self, work: Callable[[Transaction], T], begin: str) -> T:
        with self._lock:
            connection = self.connection
            try:
                connection.execute(begin)
                try:
                    done = work(_SQLiteTransaction(connection))
                    connection.execute("COMMIT")
                    return done
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except sqlite3.IntegrityError:
                raise
            except sqlite3.Error as error:
                raise self._translate(error) from error

    def _translate(self, error: sqlite3.Error) -> OncewardError:
        if sqlite_errors.primary_code(error) == sqlite3.SQLITE_ERROR:  # no such table, no such column
            return StoreBroken(
                f"{self.name}: {error}", hint="call prepare(table): it creates the table, or reports what is missing"
            )
        return sqlite_errors.explain(error, self.name, self._path)


class _SQLiteTransaction(UpsertTransaction):
    """Holds the write lock, so no other writer interferes."""

    types = TYPES
    temporary = "temp"
    distinct = "IS NOT"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._staged: dict[Tuple, Tuple] = {}  # keys as stored → keys as passed

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, tuple(values))

    def stage(self, batch: RowBatch) -> None:
        columns = batch.table.columns
        self.create_staging(dict(columns))
        times = [index for index, kind in enumerate(columns.values()) if kind == "time"]
        keys = [tuple(columns).index(name) for name in batch.table.key]
        stored = [_to_stored(row, times) for row in batch.rows] if times else batch.rows
        self._staged = {
            tuple(now[index] for index in keys): tuple(row[index] for index in keys)
            for now, row in zip(stored, batch.rows, strict=True)
        }
        placeholders = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {STAGING} VALUES ({placeholders})", stored)

    def passed_keys(self, rows: Iterable[Tuple]) -> list[Tuple]:
        return [self._staged.get(row, row) for row in rows]

    def merge(self, table: Table) -> tuple[int, int]:
        matches = " AND ".join(f't."{name}" = s."{name}"' for name in table.key)
        [(new,)] = self.execute(
            f"SELECT count(*) FROM {STAGING} s WHERE NOT EXISTS (SELECT 1 FROM {table.quoted} t WHERE {matches})"
        )
        return new, self.execute(self.upsert(table, self.replace_action(table))).rowcount - new


def _check(transaction: Transaction, table: Table) -> None:
    found = transaction.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table.name,)).fetchall()
    check_columns(table, {name: kind for name, kind, _ in found})
    for name, kind, _ in found:
        wanted = TYPES.get(table.columns.get(name, "integer"))
        if wanted == "TEXT" and kind and not any(one in kind.lower() for one in TEXT_TYPES):
            raise ConfigurationError(
                f"the existing table {table.name} would convert some texts to numbers: {name} ({kind.lower()})",
                hint="declare the column TEXT, or load into another table",
            )
    unique = transaction.execute(
        "SELECT i.name, c.name FROM pragma_index_list(?) i, pragma_index_info(i.name) c"
        ' WHERE i."unique" AND NOT i.partial',
        (table.name,),
    ).fetchall()
    keys = [{column for index, column in unique if index == one} for one in {index for index, _ in unique}]
    keys.append({name for name, _, position in found if position})  # a single INTEGER PRIMARY KEY has no index
    if set(table.key) not in keys:
        raise missing_unique_key(table)


def _to_stored(row: Tuple, times: Sequence[int]) -> Tuple:
    values = list(row)
    for index in times:
        instant = values[index]
        if isinstance(instant, int):
            values[index] = moment(instant).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return tuple(values)
