"""PostgreSQL as a warehouse: many processes may load at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from onceward.errors import MissingExtra, StoreError, StoreUnavailable
from onceward.stores.postgres.errors import RETRYABLE, PostgresRefused, explain
from onceward.stores.postgres.url import parse

from .batch import Cell, RowBatch, Tuple, batch_of
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
from .port import Fingerprinting, Loaded, Merged
from .row_merge import Rows
from .table import ColumnType, Table, quoted

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

STAGING: Final = "onceward_staging"
ATTEMPTS: Final = 8
PAUSE: Final = 0.02  # seconds, longer each time, after a deadlock or a conflict with another loader
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

TYPES: Final[dict[ColumnType, str]] = {
    "text": "text",
    "integer": "bigint",
    "number": "double precision",
    "boolean": "boolean",
    "time": "timestamptz",
    "json": "jsonb",
}
CREATE_LOADS: Final = f"""
CREATE TABLE IF NOT EXISTS {LOADS} (
    load_id text PRIMARY KEY, table_name text NOT NULL, digest text NOT NULL,
    given bigint NOT NULL, kept bigint NOT NULL, inserted bigint, updated bigint,
    loaded_at timestamptz NOT NULL DEFAULT now()
)"""
CREATE_LOCK: Final = 0x6F6E63656C6F61
"""The advisory lock for creating tables: IF NOT EXISTS alone does not prevent races."""


class PostgresWarehouse:
    """One connection, used by one load at a time. A broken connection is reopened."""

    def __init__(self, url: str) -> None:
        self._psycopg = _driver()
        settings = parse(url)
        self.name = settings.name
        self._conninfo = settings.conninfo
        self._schema = settings.schema
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        try:
            self._in_transaction(lambda cursor: self._create_missing(cursor, LOADS, [CREATE_LOADS]))
        except BaseException:
            self.close()
            raise

    def prepare(self, table: Table) -> None:
        columns = ", ".join(f'"{name}" {TYPES[kind]}' for name, kind in table.columns.items())
        schemas = [f'CREATE SCHEMA IF NOT EXISTS "{schema}"' for schema in table.name.split(".")[:-1]]
        create = f"CREATE TABLE IF NOT EXISTS {table.quoted} ({columns}, PRIMARY KEY ({quoted(table.key)}))"

        def work(cursor: Any) -> None:
            self._create_missing(cursor, table.quoted, [*schemas, create])
            _check(cursor, table)

        self._in_transaction(work)

    def _create_missing(self, cursor: Any, table: str, statements: list[str]) -> None:
        """Create a table. If it exists, execute nothing: IF NOT EXISTS would need the privilege to create tables."""
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
        if cursor.fetchone()[0]:
            return
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (CREATE_LOCK,))
        for statement in statements:
            cursor.execute(statement)

    def load(
        self, load_id: str, table: Table, rows: Iterable[Mapping[str, Any]], *, fingerprint: Fingerprinting = "rows"
    ) -> Loaded:
        batch = check_load(load_id, batch_of(table, rows), fingerprint)
        return self._run_write(lambda cursor: load_in(_PostgresTransaction(cursor), load_id, batch), table, load_id)

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> Merged:
        given = Rows(table, rows)
        return self._run_write(lambda cursor: given.merge(_PostgresTransaction(cursor), whole=whole), table, None)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        statement = sql.replace("%", "%%").replace("?", "%s")

        def work(cursor: Any) -> list[tuple[Any, ...]]:
            cursor.execute(statement, list(values))
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

        return self._in_transaction(work)

    def _run_write(self, work: Callable[[Any], T], table: Table, load_id: str | None) -> T:
        try:
            return self._in_transaction(work)
        except StoreError as error:
            cause = error.__cause__
            row_errors = (self._psycopg.IntegrityError, self._psycopg.DataError)
            if isinstance(cause, Exception) and isinstance(cause, row_errors):
                raise row_refused(table, load_id, cause) from cause
            raise

    def known(self, table: Table, keys: Sequence[Any]) -> set[Any]:
        return set(self.found(table, keys, ()))

    def found(self, table: Table, keys: Sequence[Any], columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
        rows, wanted = key_batch(table, keys)
        key = quoted(table.key)
        selected = quoted((*table.key, *check_selectable(table, columns)), "t.")

        def work(cursor: Any) -> list[Tuple]:
            _PostgresTransaction(cursor).stage(wanted)
            cursor.execute(f"SELECT {selected} FROM {table.quoted} t JOIN {STAGING} USING ({key})")
            return [tuple(_cell(value) for value in row) for row in cursor.fetchall()]

        return results_by_key(table, keys, rows, self._in_transaction(work))

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    # ── transactions ──

    def _in_transaction(self, work: Callable[[Any], T]) -> T:
        """Run the work in a transaction. It is repeated after a conflict, which the load id makes safe."""
        with self._lock:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    connection = self._connect()
                    with connection.transaction(), connection.cursor() as cursor:
                        return work(cursor)
                except self._psycopg.Error as error:
                    if error.sqlstate not in RETRYABLE or attempt == ATTEMPTS:
                        raise self._translate(error) from error
                    time.sleep(PAUSE * attempt)
        raise AssertionError  # the last attempt returned or raised

    def _connect(self) -> psycopg.Connection[Any]:
        connection = self._connection
        if connection is None or connection.closed:
            options = {} if not self._schema else {"options": f'-c search_path="{self._schema}"'}
            connection = self._connection = self._psycopg.connect(
                self._conninfo, autocommit=True, prepare_threshold=None, connect_timeout=10, **options
            )
        return connection

    def _translate(self, error: psycopg.Error) -> Exception:
        if error.sqlstate is None:  # no reply from the server: the connection failed, not the statement
            self.close()
            return StoreUnavailable(
                f"{self.name}: the connection failed ({error})", hint="the load may be repeated under the same id"
            )
        return explain(PostgresRefused(error.sqlstate, str(error)), self.name)


class _PostgresTransaction:
    """Uses INSERT … ON CONFLICT: under concurrency, MERGE may fail on the row that it should match."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def claim(self, load_id: str, batch: RowBatch) -> tuple[str, str, tuple[int, int, int, int]] | None:
        """Record the load. The insert waits for another transaction with this id, so the answer is definite."""
        self._cursor.execute(
            f"INSERT INTO {LOADS} (load_id, table_name, digest, given, kept) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (load_id) DO NOTHING",
            (load_id, batch.table.name, batch.digest, batch.given, len(batch.rows)),
        )
        if self._cursor.rowcount:
            return None
        self._cursor.execute(
            f"SELECT table_name, digest, given, kept, inserted, updated FROM {LOADS} WHERE load_id = %s",
            (load_id,),
        )
        before = self._cursor.fetchone()
        return before[0], before[1], before[2:]

    def stage(self, batch: RowBatch) -> None:
        columns = batch.table.columns
        declarations = ", ".join(f'"{name}" {TYPES[kind]}' for name, kind in columns.items())
        self._cursor.execute(f"DROP TABLE IF EXISTS pg_temp.{STAGING}")  # from an earlier pass of this transaction
        self._cursor.execute(f"CREATE TEMPORARY TABLE {STAGING} ({declarations}) ON COMMIT DROP")
        times = [index for index, kind in enumerate(columns.values()) if kind == "time"]
        with self._cursor.copy(f"COPY {STAGING} ({quoted(tuple(columns))}) FROM STDIN") as copy:
            for row in batch.rows:
                copy.write_row(_with_times(row, times) if times else row)

    def merge(self, table: Table) -> tuple[int, int]:
        names = quoted(tuple(table.columns))
        action = "DO NOTHING"
        if table.on_match == "replace" and table.others:
            assigned = ", ".join(f'"{name}" = excluded."{name}"' for name in table.others)
            differs = f"({quoted(table.others, 't.')}) IS DISTINCT FROM ({quoted(table.others, 'excluded.')})"
            action = f"DO UPDATE SET {assigned} WHERE {differs}{not_older(table)}"
        keys = quoted(table.key)
        self._cursor.execute(
            f"WITH merged AS (INSERT INTO {table.quoted} AS t ({names})"
            f" SELECT {names} FROM {STAGING} ORDER BY {keys}"
            f" ON CONFLICT ({keys}) {action} RETURNING t.xmax = 0 AS inserted)"
            " SELECT count(*) FILTER (WHERE inserted), count(*) FILTER (WHERE NOT inserted) FROM merged"
        )
        inserted, updated = self._cursor.fetchone()
        return inserted, updated

    def insert(self, table: Table) -> set[Tuple]:
        names, keys = quoted(tuple(table.columns)), quoted(table.key)
        self._cursor.execute(
            f"INSERT INTO {table.quoted} AS t ({names}) SELECT {names} FROM {STAGING} ORDER BY {keys}"
            f" ON CONFLICT ({keys}) DO NOTHING RETURNING {quoted(table.key, 't.')}"
        )
        return {tuple(_cell(value) for value in row) for row in self._cursor.fetchall()}

    def differing(self, table: Table) -> set[Tuple]:
        """Return the differing keys. Under READ COMMITTED this sees the row for which the insert waited."""
        differs = " OR ".join(f't."{name}" <> s."{name}"' for name in table.same_by)
        self._cursor.execute(
            f"SELECT {quoted(table.key, 't.')} FROM {table.quoted} t JOIN {STAGING} s USING ({quoted(table.key)})"
            f" WHERE {differs}"
        )
        return {tuple(_cell(value) for value in row) for row in self._cursor.fetchall()}

    def record(self, load_id: str, inserted: int, updated: int) -> None:
        self._cursor.execute(
            f"UPDATE {LOADS} SET inserted = %s, updated = %s WHERE load_id = %s",
            (inserted, updated, load_id),
        )


def _check(cursor: Any, table: Table) -> None:
    cursor.execute(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        (table.quoted,),
    )
    check_columns(table, dict(cursor.fetchall()))
    cursor.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
        " AND a.attnum = ANY (i.indkey) WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid"
        " AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
        (table.quoted,),
    )
    if not any(set(columns) == set(table.key) for (columns,) in cursor.fetchall()):
        raise missing_unique_key(table)


def _with_times(row: Sequence[Cell], indexes: list[int]) -> list[Any]:
    values: list[Any] = list(row)
    for index in indexes:
        if values[index] is not None:
            values[index] = _EPOCH + timedelta(microseconds=values[index])
    return values


def _cell(value: Any) -> Any:
    return (value - _EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def _driver() -> Any:
    try:
        import psycopg
    except ModuleNotFoundError as error:
        raise MissingExtra("psycopg is not installed", hint="install onceward[postgres]") from error
    return psycopg
