"""DuckDB as the warehouse: a file, opened by one process at a time, or the memory of this one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from onceward.errors import MissingExtra, OncewardError, StoreBroken, StoreUnavailable

from .batch import Batch, Tuple, batch_of
from .comparing import Rows
from .loading import LOADS, by_key, checked, load_in, no_key, plain_columns, refuse_other_columns, refused, wanted_keys
from .port import Fingerprinting, Loaded, Merged
from .table import ColumnType, Table, quoted

T = TypeVar("T")

STAGING: Final = "onceward_staging"
ATTEMPTS: Final = 20
FIRST_PAUSE: Final = 0.005  # seconds, doubled up to the longest: somebody else in this process is loading, too
LONGEST_PAUSE: Final = 0.2

TAKEN: Final = "Duplicate key"
"""What DuckDB says to the later one of two that insert the same row at once."""

TYPES: Final[dict[ColumnType, tuple[str, str]]] = {
    "text": ("VARCHAR", "VARCHAR"),
    "integer": ("BIGINT", "BIGINT"),
    "number": ("DOUBLE", "DOUBLE"),
    "boolean": ("BOOLEAN", "BOOLEAN"),
    "time": ("TIMESTAMPTZ", "BIGINT"),
    "json": ("JSON", "VARCHAR"),
}
"""In the table, and on the way there."""

MAKE_LOADS: Final = f"""
CREATE TABLE IF NOT EXISTS {LOADS} (
    load_id VARCHAR PRIMARY KEY, table_name VARCHAR NOT NULL, digest VARCHAR NOT NULL,
    given BIGINT NOT NULL, kept BIGINT NOT NULL, inserted BIGINT, updated BIGINT,
    loaded_at TIMESTAMPTZ NOT NULL DEFAULT current_timestamp
)"""


class DuckWarehouse:
    """Loads of one process take turns: DuckDB itself uses all cores for one of them."""

    def __init__(self, path: str) -> None:
        self._duckdb = _driver()
        self.name = f"duckdb:///{path}" if path != ":memory:" else "duckdb://:memory:"
        self._turn = threading.Lock()
        try:
            self.connection: Any = self._duckdb.connect(path)
            self.connection.execute(MAKE_LOADS)
        except self._duckdb.Error as error:
            raise self._explained(error) from error

    def prepare(self, table: Table) -> None:
        columns = ", ".join(f'"{name}" {TYPES[kind][0]}' for name, kind in table.columns.items())
        with self._turn:
            try:
                for schema in table.name.split(".")[:-1]:
                    self.connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
                self.connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {table.quoted} ({columns}, PRIMARY KEY ({quoted(table.key)}))"
                )
                self._check(table)
            except self._duckdb.Error as error:
                raise self._explained(error) from error

    def _check(self, table: Table) -> None:
        found = self.connection.execute(f"DESCRIBE {table.quoted}").fetchall()
        refuse_other_columns(table, {column[0]: column[1] for column in found})
        schema, _, name = table.name.rpartition(".")
        keys = self.connection.execute(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE schema_name = ? AND table_name = ?"
            " AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
            [schema or "main", name],
        ).fetchall()
        if not any(set(columns) == set(table.key) for (columns,) in keys):
            raise no_key(table)

    def load(
        self, load_id: str, table: Table, rows: Iterable[Mapping[str, Any]], *, fingerprint: Fingerprinting = "rows"
    ) -> Loaded:
        batch = checked(load_id, batch_of(table, rows), fingerprint)
        return self._in_turn(lambda: load_in(_DuckMerging(self.connection), load_id, batch), table, load_id)

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> Merged:
        given = Rows(table, rows)
        return self._in_turn(lambda: given.merge(_DuckMerging(self.connection), whole=whole), table, None)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._turn:
            try:
                found: list[tuple[Any, ...]] = self.connection.execute(sql, list(values)).fetchall()
            except self._duckdb.Error as error:
                raise self._explained(error) from error
        return found

    def _in_turn(self, work: Callable[[], T], table: Table, load_id: str | None) -> T:
        """In a transaction; once more if somebody else of this process was faster."""
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._turn:
                    return self._committed(work)
            except (self._duckdb.TransactionException, self._duckdb.ConstraintException) as error:
                if isinstance(error, self._duckdb.ConstraintException) and TAKEN not in str(error):
                    raise refused(table, load_id, error) from error
                if attempt == ATTEMPTS:
                    raise StoreUnavailable(
                        f"{self.name}: somebody else was faster, again and again ({error})",
                        key=load_id,
                        hint="it may be repeated as it is",
                    ) from error
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except self._duckdb.Error as error:
                raise self._explained(error) from error
        raise AssertionError  # the last attempt has answered or raised

    def _committed(self, work: Callable[[], T]) -> T:
        self.connection.execute("BEGIN")
        try:
            done = work()
            self.connection.execute("COMMIT")
        except BaseException:
            _roll_back(self.connection, self._duckdb)
            raise
        return done

    def known(self, table: Table, keys: Sequence[Any]) -> set[Any]:
        return set(self.found(table, keys, ()))

    def found(self, table: Table, keys: Sequence[Any], columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
        rows, wanted = wanted_keys(table, keys)
        matches = " AND ".join(f't."{name}" = s."{name}"' for name in table.key)
        shown = [_shown(f't."{name}"', table.columns[name]) for name in (*table.key, *plain_columns(table, columns))]
        with self._turn:
            try:
                _DuckMerging(self.connection).stage(wanted)
                answers = self.connection.execute(
                    f"SELECT {', '.join(shown)} FROM {table.quoted} t JOIN {STAGING} s ON {matches}"
                ).fetchall()
            except self._duckdb.Error as error:
                raise self._explained(error) from error
        return by_key(table, keys, rows, answers)

    def close(self) -> None:
        with self._turn:
            self.connection.close()

    def _explained(self, error: Exception) -> OncewardError:
        if isinstance(error, self._duckdb.IOException) and "lock" in str(error).lower():
            return StoreUnavailable(
                f"{self.name}: another process has it open ({error})",
                hint="one process at a time: load from one, or use PostgreSQL",
            )
        if isinstance(error, self._duckdb.OperationalError):
            return StoreUnavailable(f"{self.name}: {error}", hint="the load may be repeated under the same id")
        return StoreBroken(f"{self.name}: {error}", hint="look at the message of DuckDB")


class _DuckMerging:
    """DuckDB has MERGE, which tells what it did with each row."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def claimed(self, load_id: str, batch: Batch) -> tuple[str, str, tuple[int, int, int, int]] | None:
        before = self._connection.execute(
            f"SELECT table_name, digest, given, kept, inserted, updated FROM {LOADS} WHERE load_id = ?",
            [load_id],
        ).fetchone()
        if before is not None:
            return before[0], before[1], before[2:]
        self._connection.execute(
            f"INSERT INTO {LOADS} (load_id, table_name, digest, given, kept) VALUES (?, ?, ?, ?, ?)",
            [load_id, batch.table.name, batch.digest, batch.given, len(batch.rows)],
        )
        return None

    def stage(self, batch: Batch) -> None:
        """All rows as one parameter: a statement a row would take longer than all the rest."""
        columns = batch.table.columns
        shape = msgspec.json.encode([{name: TYPES[kind][1] for name, kind in columns.items()}]).decode()
        taken = ", ".join(_taken(name, kind) for name, kind in columns.items())
        rows = msgspec.json.encode([dict(zip(columns, row, strict=True)) for row in batch.rows]).decode()
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {STAGING} AS"
            f" SELECT {taken} FROM (SELECT unnest(from_json(?::JSON, '{shape}')) AS r)",
            [rows],
        )

    def merge(self, table: Table) -> tuple[int, int]:
        names = tuple(table.columns)
        matches = " AND ".join(f't."{name}" = s."{name}"' for name in table.key)
        replaces = ""
        if table.on_match == "replace" and table.others:
            differs = " OR ".join(f't."{name}" IS DISTINCT FROM s."{name}"' for name in table.others)
            newer = _not_older(table)
            assigned = ", ".join(f'"{name}" = s."{name}"' for name in table.others)
            replaces = f"WHEN MATCHED AND ({differs}){newer} THEN UPDATE SET {assigned}"
        found = self._connection.execute(
            f"MERGE INTO {table.quoted} AS t USING {STAGING} AS s ON {matches} {replaces}"
            f" WHEN NOT MATCHED THEN INSERT ({quoted(names)}) VALUES ({quoted(names, 's.')}) RETURNING merge_action"
        ).fetchall()
        inserted = sum(action == "INSERT" for (action,) in found)
        return inserted, len(found) - inserted

    def insert(self, table: Table) -> set[Tuple]:
        names = tuple(table.columns)
        matches = " AND ".join(f't."{name}" = s."{name}"' for name in table.key)
        shown = ", ".join(_shown(f'"{name}"', table.columns[name]) for name in table.key)
        found = self._connection.execute(
            f"MERGE INTO {table.quoted} AS t USING {STAGING} AS s ON {matches}"
            f" WHEN NOT MATCHED THEN INSERT ({quoted(names)}) VALUES ({quoted(names, 's.')}) RETURNING {shown}"
        ).fetchall()
        return set(found)

    def differing(self, table: Table) -> set[Tuple]:
        matches = " AND ".join(f't."{name}" = s."{name}"' for name in table.key)
        differs = " OR ".join(f't."{name}" <> s."{name}"' for name in table.same_by)
        shown = ", ".join(_shown(f't."{name}"', table.columns[name]) for name in table.key)
        found = self._connection.execute(
            f"SELECT {shown} FROM {table.quoted} t JOIN {STAGING} s ON {matches} WHERE {differs}"
        ).fetchall()
        return set(found)

    def record(self, load_id: str, inserted: int, updated: int) -> None:
        self._connection.execute(
            f"UPDATE {LOADS} SET inserted = ?, updated = ? WHERE load_id = ?",
            [inserted, updated, load_id],
        )


def _not_older(table: Table) -> str:
    """A row without a time is older than any that has one."""
    if table.newest_by is None:
        return ""
    column = f'"{table.newest_by}"'
    return f" AND (t.{column} IS NULL OR s.{column} >= t.{column})"


def _taken(name: str, kind: ColumnType) -> str:
    if kind == "time":
        return f'make_timestamptz(r."{name}") AS "{name}"'
    return f'r."{name}"::{TYPES[kind][0]} AS "{name}"'


def _shown(expression: str, kind: ColumnType) -> str:
    return f"epoch_us({expression})" if kind == "time" else expression


def _roll_back(connection: Any, duckdb: Any) -> None:
    with contextlib.suppress(duckdb.Error):  # it is over already
        connection.execute("ROLLBACK")


def _driver() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise MissingExtra("DuckDB is not installed", hint="install onceward[warehouse]") from error
    return duckdb
