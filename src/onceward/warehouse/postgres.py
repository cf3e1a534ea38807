"""PostgreSQL as a warehouse: many processes may load at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from onceward.errors import StoreError, StoreUnavailable
from onceward.protocol.extras import import_extra
from onceward.protocol.instants import instant, moment
from onceward.stores.postgres.errors import RETRYABLE, PostgresRefused, explain
from onceward.stores.postgres.url import parse

from .base import SqlWarehouse
from .batch import RowBatch, Tuple
from .load import LOADS, check_columns, missing_unique_key, row_refused
from .table import ColumnType, Table, quoted
from .transaction import STAGING, Transaction, UpsertTransaction

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

ATTEMPTS: Final = 8
PAUSE: Final = 0.02  # seconds, longer each time, after a deadlock or a conflict with another loader

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


class PostgresWarehouse(SqlWarehouse):
    """One connection, used by one load at a time. A broken connection is reopened."""

    def __init__(self, url: str) -> None:
        self._psycopg = import_extra("psycopg", "psycopg is not installed", "install onceward[postgres]")
        settings = parse(url)
        self.name = settings.name
        self._conninfo = settings.conninfo
        self._schema = settings.schema
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        try:
            self._read(lambda transaction: _create_missing(transaction, LOADS, [CREATE_LOADS]))
        except BaseException:
            self.close()
            raise

    def prepare(self, table: Table) -> None:
        columns = ", ".join(f'"{name}" {TYPES[kind]}' for name, kind in table.columns.items())
        schemas = [f'CREATE SCHEMA IF NOT EXISTS "{schema}"' for schema in table.name.split(".")[:-1]]
        create = f"CREATE TABLE IF NOT EXISTS {table.quoted} ({columns}, PRIMARY KEY ({quoted(table.key)}))"

        def work(transaction: Transaction) -> None:
            _create_missing(transaction, table.quoted, [*schemas, create])
            _check(transaction, table)

        self._read(work)

    def _write(self, table: Table, load_id: str | None, work: Callable[[Transaction], T]) -> T:
        try:
            return self._read(work)
        except StoreError as error:
            cause = error.__cause__
            refused = (self._psycopg.IntegrityError, self._psycopg.DataError)
            if isinstance(cause, Exception) and isinstance(cause, refused):
                raise row_refused(table, load_id, cause) from cause
            raise

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    # ── transactions ──

    def _read(self, work: Callable[[Transaction], T]) -> T:
        """Run the work in a transaction. It is repeated after a conflict, which the load id makes safe."""
        with self._lock:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    connection = self._connect()
                    with connection.transaction(), connection.cursor() as cursor:
                        return work(_PostgresTransaction(cursor))
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


class _PostgresTransaction(UpsertTransaction):
    """Does not use MERGE: under concurrency, it may fail on the row that it should match."""

    types = TYPES
    temporary = "pg_temp"
    distinct = "IS DISTINCT FROM"

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._cursor.execute(statement.replace("%", "%%").replace("?", "%s"), list(values))

    def stage(self, batch: RowBatch) -> None:
        columns = batch.table.columns
        self.create_staging(dict(columns), " ON COMMIT DROP")
        times = [index for index, kind in enumerate(columns.values()) if kind == "time"]
        with self._cursor.copy(f"COPY {STAGING} ({quoted(tuple(columns))}) FROM STDIN") as copy:
            for row in batch.rows:
                copy.write_row(_with_times(row, times) if times else row)

    def passed_keys(self, rows: Iterable[Tuple]) -> list[Tuple]:
        return [tuple(instant(value) if isinstance(value, datetime) else value for value in row) for row in rows]

    def merge(self, table: Table) -> tuple[int, int]:
        upsert = self.upsert(table, self.replace_action(table), "RETURNING t.xmax = 0 AS inserted")
        inserted, updated = self.execute(
            f"WITH merged AS ({upsert})"
            " SELECT count(*) FILTER (WHERE inserted), count(*) FILTER (WHERE NOT inserted) FROM merged"
        ).fetchone()
        return inserted, updated


def _create_missing(transaction: Transaction, table: str, statements: list[str]) -> None:
    """Create a table. If it exists, execute nothing: IF NOT EXISTS would need the privilege to create tables."""
    if transaction.execute("SELECT to_regclass(?) IS NOT NULL", (table,)).fetchone()[0]:
        return
    transaction.execute("SELECT pg_advisory_xact_lock(?)", (CREATE_LOCK,))
    for statement in statements:
        transaction.execute(statement)


def _check(transaction: Transaction, table: Table) -> None:
    columns = transaction.execute(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
        " WHERE attrelid = ?::regclass AND attnum > 0 AND NOT attisdropped",
        (table.quoted,),
    )
    check_columns(table, dict(columns.fetchall()))
    keys = transaction.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
        " AND a.attnum = ANY (i.indkey) WHERE i.indrelid = ?::regclass AND i.indisunique AND i.indisvalid"
        " AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
        (table.quoted,),
    )
    if not any(set(key) == set(table.key) for (key,) in keys.fetchall()):
        raise missing_unique_key(table)


def _with_times(row: Tuple, indexes: list[int]) -> list[Any]:
    values: list[Any] = list(row)
    for index in indexes:
        if values[index] is not None:
            values[index] = moment(values[index])
    return values
