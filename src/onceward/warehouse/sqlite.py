"""SQLite as the warehouse: a file for several processes of one machine, which take turns. Needs no driver."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from onceward.errors import ConfigurationError, OncewardError, StoreBroken
from onceward.stores.sqlite import errors as faults
from onceward.stores.sqlite.connection import MEMORY
from onceward.stores.sqlite.url import absolute, checked_synchronous, name_of, parse

from .batch import RowBatch, Tuple, batch_of
from .load import LOADS, by_key, checked, load_in, no_key, plain_columns, refuse_other_columns, refused, wanted_keys
from .port import Fingerprinting, Loaded, MergeResult
from .row_merge import Rows
from .table import ColumnType, Table, quoted

T = TypeVar("T")

STAGING: Final = "onceward_staging"
BUSY: Final = 30.0  # seconds that a load waits for another one
RETRY: Final = 0.01  # seconds
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

TYPES: Final[dict[ColumnType, str]] = {
    "text": "TEXT",
    "integer": "INTEGER",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "time": "TEXT",
    "json": "TEXT",
}
"""A time is text in UTC, always of the same length: it sorts as it should, and SQLite's own functions read it."""

KEEPS_TEXT: Final = ("char", "clob", "text", "blob")
"""In a column whose type has none of these in its name, SQLite makes a number of a text that looks like one."""

MAKE_LOADS: Final = f"""
CREATE TABLE IF NOT EXISTS {LOADS} (
    load_id TEXT PRIMARY KEY, table_name TEXT NOT NULL, digest TEXT NOT NULL,
    given INTEGER NOT NULL, kept INTEGER NOT NULL, inserted INTEGER, updated INTEGER,
    loaded_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
)"""


class SQLiteWarehouse:
    """One connection, used by one load at a time; a load of another process waits until this one is committed."""

    def __init__(self, url: str) -> None:
        path, settings = parse(url)
        self._path = path if path == MEMORY else absolute(path)
        self._synchronous = checked_synchronous(settings.get("synchronous", "FULL"))
        self.name = name_of(self._path)
        self._turn = threading.RLock()
        try:
            self.connection = self._opened()
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _opened(self) -> sqlite3.Connection:
        """SQLite refuses some steps of a race of openers at once, without waiting: those are repeated here."""
        deadline = time.monotonic() + BUSY
        while True:
            connection = sqlite3.connect(self._path, timeout=BUSY, isolation_level=None, check_same_thread=False)
            try:
                for statement in ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {self._synchronous}", MAKE_LOADS):
                    connection.execute(statement).fetchall()
                return connection
            except BaseException as error:
                connection.close()
                busy = isinstance(error, sqlite3.OperationalError) and faults.is_busy(error)
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY)

    def prepare(self, table: Table) -> None:
        if "." in table.name:
            raise ConfigurationError(
                f"{table.name!r} is in a schema, and SQLite has none", hint="give it a name without a dot"
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
        batch = checked(load_id, batch_of(table, rows), fingerprint)
        return self._written(lambda connection: load_in(_SQLiteMerging(connection), load_id, batch), table, load_id)

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> MergeResult:
        given = Rows(table, rows)
        return self._written(lambda connection: given.merge(_SQLiteMerging(connection), whole=whole), table, None)

    def _written(self, work: Callable[[sqlite3.Connection], T], table: Table, load_id: str | None) -> T:
        try:
            return self._in_transaction(work)
        except sqlite3.IntegrityError as error:
            raise refused(table, load_id, error) from error

    def known(self, table: Table, keys: Sequence[Any]) -> set[Any]:
        return set(self.found(table, keys, ()))

    def found(self, table: Table, keys: Sequence[Any], columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
        rows, wanted = wanted_keys(table, keys)
        joined, shown = quoted(table.key), quoted((*table.key, *plain_columns(table, columns)), "t.")

        def work(connection: sqlite3.Connection) -> list[Tuple]:
            _SQLiteMerging(connection).stage(wanted)
            asked = f"SELECT {shown} FROM {table.quoted} t JOIN {STAGING} USING ({joined})"
            return connection.execute(asked).fetchall()

        answers = self._in_transaction(work, "BEGIN")
        return by_key(table, keys, list(map(_converter(wanted.table), rows)), answers)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._in_transaction(lambda connection: connection.execute(sql, tuple(values)).fetchall(), "BEGIN")

    def close(self) -> None:
        with self._turn:
            self.connection.close()

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T], begin: str = "BEGIN IMMEDIATE") -> T:
        with self._turn:
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
                raise self._explained(error) from error

    def _explained(self, error: sqlite3.Error) -> OncewardError:
        if faults.primary(error) == sqlite3.SQLITE_ERROR:  # no such table, no such column
            return StoreBroken(f"{self.name}: {error}", hint="prepare(table) makes it, or says what it lacks")
        return faults.explain(error, self.name, self._path)


class _SQLiteMerging:
    """SQLite has no MERGE: INSERT … ON CONFLICT does the same."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._staged: dict[Tuple, Tuple] = {}  # keys as they are kept, and as they were given

    def claimed(self, load_id: str, batch: RowBatch) -> tuple[str, str, tuple[int, int, int, int]] | None:
        before = self._connection.execute(
            f"SELECT table_name, digest, given, kept, inserted, updated FROM {LOADS} WHERE load_id = ?",
            (load_id,),
        ).fetchone()
        if before is not None:
            return before[0], before[1], before[2:]
        self._connection.execute(
            f"INSERT INTO {LOADS} (load_id, table_name, digest, given, kept) VALUES (?, ?, ?, ?, ?)",
            (load_id, batch.table.name, batch.digest, batch.given, len(batch.rows)),
        )
        return None

    def stage(self, batch: RowBatch) -> None:
        columns = batch.table.columns
        made = ", ".join(f'"{name}" {TYPES[kind]}' for name, kind in columns.items())
        as_kept = _converter(batch.table)
        self._connection.execute(f"DROP TABLE IF EXISTS temp.{STAGING}")
        self._connection.execute(f"CREATE TEMPORARY TABLE {STAGING} ({made})")
        keys = [tuple(columns).index(name) for name in batch.table.key]
        self._staged = {
            tuple(as_kept(row)[place] for place in keys): tuple(row[place] for place in keys) for row in batch.rows
        }
        places = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO temp.{STAGING} VALUES ({places})", map(as_kept, batch.rows))

    def merge(self, table: Table) -> tuple[int, int]:
        names, keys = quoted(tuple(table.columns)), quoted(table.key)
        matches = " AND ".join(f't."{name}" = s."{name}"' for name in table.key)
        action = "DO NOTHING"
        if table.on_match == "replace" and table.others:
            assigned = ", ".join(f'"{name}" = excluded."{name}"' for name in table.others)
            differs = " OR ".join(f't."{name}" IS NOT excluded."{name}"' for name in table.others)
            action = f"DO UPDATE SET {assigned} WHERE ({differs}){_not_older(table)}"
        [(new,)] = self._connection.execute(
            f"SELECT count(*) FROM {STAGING} s WHERE NOT EXISTS (SELECT 1 FROM {table.quoted} t WHERE {matches})"
        )
        changed = self._connection.execute(
            f"INSERT INTO {table.quoted} AS t ({names}) SELECT {names} FROM {STAGING} WHERE true"
            f" ON CONFLICT ({keys}) {action}"
        ).rowcount
        return new, changed - new

    def insert(self, table: Table) -> set[Tuple]:
        """Nobody else writes meanwhile."""
        names, keys = quoted(tuple(table.columns)), quoted(table.key)
        matches = " AND ".join(f't."{name}" = s."{name}"' for name in table.key)
        unmatched = f"FROM {STAGING} s WHERE NOT EXISTS (SELECT 1 FROM {table.quoted} t WHERE {matches})"
        new = self._connection.execute(f"SELECT {keys} {unmatched}").fetchall()
        self._connection.execute(f"INSERT INTO {table.quoted} ({names}) SELECT {names} {unmatched}")
        return {self._staged[key] for key in new}

    def differing(self, table: Table) -> set[Tuple]:
        differs = " OR ".join(f't."{name}" <> s."{name}"' for name in table.same_by)
        asked = (
            f"SELECT {quoted(table.key, 't.')} FROM {table.quoted} t JOIN {STAGING} s USING ({quoted(table.key)})"
            f" WHERE {differs}"
        )
        return {self._staged[key] for key in self._connection.execute(asked)}

    def record(self, load_id: str, inserted: int, updated: int) -> None:
        self._connection.execute(
            f"UPDATE {LOADS} SET inserted = ?, updated = ? WHERE load_id = ?",
            (inserted, updated, load_id),
        )


def _check(connection: sqlite3.Connection, table: Table) -> None:
    found = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table.name,)).fetchall()
    refuse_other_columns(table, {name: kind for name, kind, _ in found})
    for name, kind, _ in found:
        wanted = TYPES.get(table.columns.get(name, "integer"))
        if wanted == "TEXT" and kind and not any(one in kind.lower() for one in KEEPS_TEXT):
            raise ConfigurationError(
                f"the table {table.name} is there, and {name} ({kind.lower()}) makes numbers of some texts",
                hint="declare the column TEXT, or load into another table",
            )
    unique = connection.execute(
        "SELECT i.name, c.name FROM pragma_index_list(?) i, pragma_index_info(i.name) c"
        ' WHERE i."unique" AND NOT i.partial',
        (table.name,),
    ).fetchall()
    keys = [{column for index, column in unique if index == one} for one in {index for index, _ in unique}]
    keys.append({name for name, _, place in found if place})  # a single INTEGER PRIMARY KEY has no index of its own
    if set(table.key) not in keys:
        raise no_key(table)


def _not_older(table: Table) -> str:
    """A row without a time is older than any that has one."""
    if table.newest_by is None:
        return ""
    column = f'"{table.newest_by}"'
    return f" AND (t.{column} IS NULL OR excluded.{column} >= t.{column})"


def _converter(table: Table) -> Callable[[Tuple], Tuple]:
    times = [place for place, kind in enumerate(table.columns.values()) if kind == "time"]

    def as_kept(row: Tuple) -> Tuple:
        values = list(row)
        for place in times:
            instant = values[place]
            if isinstance(instant, int):
                moment = _EPOCH + timedelta(microseconds=instant)
                values[place] = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return tuple(values)

    return as_kept if times else _as_it_is


def _as_it_is(row: Tuple) -> Tuple:
    return row
