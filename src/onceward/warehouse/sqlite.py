"""SQLite as a warehouse: a file for several processes of one machine, which load in turn. Needs no driver."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from onceward.errors import ConfigurationError, OncewardError, StoreBroken
from onceward.stores.sqlite import errors as sqlite_errors
from onceward.stores.sqlite.connection import MEMORY
from onceward.stores.sqlite.private_file import create_private_file
from onceward.stores.sqlite.url import absolute, checked_synchronous, name_of, parse

from .batch import RowBatch, Tuple, batch_of
from .load import (
    LOADS,
    check_columns,
    check_load,
    check_selectable,
    key_batch,
    load_in,
    missing_unique_key,
    not_older,
    results_by_key,
    row_refused,
)
from .load_records import LoadRecords
from .port import Fingerprinting, Loaded, Merged
from .row_merge import Rows
from .table import ColumnType, Table, quoted

T = TypeVar("T")

STAGING: Final = "onceward_staging"
BUSY_TIMEOUT: Final = 30.0  # seconds that a load waits for another load
RETRY_DELAY: Final = 0.01  # seconds
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

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


class SQLiteWarehouse:
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

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {table.quoted} ({columns}, PRIMARY KEY ({quoted(table.key)}))"
            )
            _check(connection, table)

        self._in_transaction(work)

    def load(
        self, load_id: str, table: Table, rows: Iterable[Mapping[str, Any]], *, fingerprint: Fingerprinting = "rows"
    ) -> Loaded:
        batch = check_load(load_id, batch_of(table, rows), fingerprint)
        return self._run_write(
            lambda connection: load_in(_SQLiteTransaction(connection), load_id, batch), table, load_id
        )

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> Merged:
        given = Rows(table, rows)
        return self._run_write(lambda connection: given.merge(_SQLiteTransaction(connection), whole=whole), table, None)

    def _run_write(self, work: Callable[[sqlite3.Connection], T], table: Table, load_id: str | None) -> T:
        try:
            return self._in_transaction(work)
        except sqlite3.IntegrityError as error:
            raise row_refused(table, load_id, error) from error

    def known(self, table: Table, keys: Sequence[Any]) -> set[Any]:
        return set(self.found(table, keys, ()))

    def found(self, table: Table, keys: Sequence[Any], columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
        rows, wanted = key_batch(table, keys)
        key, selected = quoted(table.key), quoted((*table.key, *check_selectable(table, columns)), "t.")

        def work(connection: sqlite3.Connection) -> list[Tuple]:
            _SQLiteTransaction(connection).stage(wanted)
            statement = f"SELECT {selected} FROM {table.quoted} t JOIN {STAGING} USING ({key})"
            return connection.execute(statement).fetchall()

        answers = self._in_transaction(work, "BEGIN")
        return results_by_key(table, keys, list(map(_converter(wanted.table), rows)), answers)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._in_transaction(lambda connection: connection.execute(sql, tuple(values)).fetchall(), "BEGIN")

    def close(self) -> None:
        with self._lock:
            self.connection.close()

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T], begin: str = "BEGIN IMMEDIATE") -> T:
        with self._lock:
            connection = self.connection
            try:
                connection.execute(begin)
                try:
                    done = work(connection)
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


class _SQLiteTransaction(LoadRecords):
    """Uses INSERT … ON CONFLICT, because SQLite has no MERGE."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._staged: dict[Tuple, Tuple] = {}  # keys as stored → keys as passed

    def stage(self, batch: RowBatch) -> None:
        columns = batch.table.columns
        declarations = ", ".join(f'"{name}" {TYPES[kind]}' for name, kind in columns.items())
        to_stored = _converter(batch.table)
        self._connection.execute(f"DROP TABLE IF EXISTS temp.{STAGING}")
        self._connection.execute(f"CREATE TEMPORARY TABLE {STAGING} ({declarations})")
        keys = [tuple(columns).index(name) for name in batch.table.key]
        self._staged = {
            tuple(to_stored(row)[index] for index in keys): tuple(row[index] for index in keys) for row in batch.rows
        }
        placeholders = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO temp.{STAGING} VALUES ({placeholders})", map(to_stored, batch.rows))

    def merge(self, table: Table) -> tuple[int, int]:
        names, keys = quoted(tuple(table.columns)), quoted(table.key)
        matches = " AND ".join(f't."{name}" = s."{name}"' for name in table.key)
        action = "DO NOTHING"
        if table.on_match == "replace" and table.others:
            assigned = ", ".join(f'"{name}" = excluded."{name}"' for name in table.others)
            differs = " OR ".join(f't."{name}" IS NOT excluded."{name}"' for name in table.others)
            action = f"DO UPDATE SET {assigned} WHERE ({differs}){not_older(table)}"
        [(new,)] = self._connection.execute(
            f"SELECT count(*) FROM {STAGING} s WHERE NOT EXISTS (SELECT 1 FROM {table.quoted} t WHERE {matches})"
        )
        changed = self._connection.execute(
            f"INSERT INTO {table.quoted} AS t ({names}) SELECT {names} FROM {STAGING} WHERE true"
            f" ON CONFLICT ({keys}) {action}"
        ).rowcount
        return new, changed - new

    def insert(self, table: Table) -> set[Tuple]:
        """Insert the rows with new keys. The transaction holds the write lock, so no other writer interferes."""
        names, keys = quoted(tuple(table.columns)), quoted(table.key)
        matches = " AND ".join(f't."{name}" = s."{name}"' for name in table.key)
        unmatched = f"FROM {STAGING} s WHERE NOT EXISTS (SELECT 1 FROM {table.quoted} t WHERE {matches})"
        new = self._connection.execute(f"SELECT {keys} {unmatched}").fetchall()
        self._connection.execute(f"INSERT INTO {table.quoted} ({names}) SELECT {names} {unmatched}")
        return {self._staged[key] for key in new}

    def differing(self, table: Table) -> set[Tuple]:
        differs = " OR ".join(f't."{name}" <> s."{name}"' for name in table.same_by)
        statement = (
            f"SELECT {quoted(table.key, 't.')} FROM {table.quoted} t JOIN {STAGING} s USING ({quoted(table.key)})"
            f" WHERE {differs}"
        )
        return {self._staged[key] for key in self._connection.execute(statement)}


def _check(connection: sqlite3.Connection, table: Table) -> None:
    found = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table.name,)).fetchall()
    check_columns(table, {name: kind for name, kind, _ in found})
    for name, kind, _ in found:
        wanted = TYPES.get(table.columns.get(name, "integer"))
        if wanted == "TEXT" and kind and not any(one in kind.lower() for one in TEXT_TYPES):
            raise ConfigurationError(
                f"the existing table {table.name} would convert some texts to numbers: {name} ({kind.lower()})",
                hint="declare the column TEXT, or load into another table",
            )
    unique = connection.execute(
        "SELECT i.name, c.name FROM pragma_index_list(?) i, pragma_index_info(i.name) c"
        ' WHERE i."unique" AND NOT i.partial',
        (table.name,),
    ).fetchall()
    keys = [{column for index, column in unique if index == one} for one in {index for index, _ in unique}]
    keys.append({name for name, _, position in found if position})  # a single INTEGER PRIMARY KEY has no index
    if set(table.key) not in keys:
        raise missing_unique_key(table)


def _converter(table: Table) -> Callable[[Tuple], Tuple]:
    times = [index for index, kind in enumerate(table.columns.values()) if kind == "time"]

    def to_stored(row: Tuple) -> Tuple:
        values = list(row)
        for index in times:
            instant = values[index]
            if isinstance(instant, int):
                moment = _EPOCH + timedelta(microseconds=instant)
                values[index] = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return tuple(values)

    return to_stored if times else _unchanged


def _unchanged(row: Tuple) -> Tuple:
    return row
