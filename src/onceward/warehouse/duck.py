"""DuckDB as a warehouse: a file that one process opens at a time, or memory."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from onceward.errors import OncewardError, StoreBroken, StoreUnavailable
from onceward.protocol.extras import import_extra

from .base import SqlWarehouse
from .duck_merge import CREATE_TURN_COUNTERS, TYPES, DuckTransaction, canonical_name, is_keyed
from .duck_url import MEMORY, DuckAddress, invalid_memory_limit
from .load import LOADS, check_columns, missing_unique_key, row_refused
from .table import Table, quoted
from .transaction import Transaction

T = TypeVar("T")

ATTEMPTS: Final = 20
MIN_PAUSE: Final = 0.005  # seconds, doubled up to the maximum: another load of this process conflicts
MAX_PAUSE: Final = 0.2

DUPLICATE_KEY: Final = "Duplicate key"
"""DuckDB's message for the later of two transactions that insert the same key."""

CREATE_LOADS: Final = f"""
CREATE TABLE IF NOT EXISTS {LOADS} (
    load_id VARCHAR PRIMARY KEY, table_name VARCHAR NOT NULL, digest VARCHAR NOT NULL,
    given BIGINT NOT NULL, kept BIGINT NOT NULL, inserted BIGINT, updated BIGINT,
    loaded_at TIMESTAMPTZ NOT NULL DEFAULT current_timestamp
)"""


class DuckWarehouse(SqlWarehouse):
    """Loads of one process run one after the other: DuckDB uses all cores for each of them."""

    def __init__(self, address: DuckAddress) -> None:
        self._duckdb = import_extra("duckdb", "DuckDB is not installed", "install onceward[warehouse]")
        self.name = address.name
        self._address = address
        self._lock = threading.Lock()
        self._keyed: dict[str, bool] = {}
        self._queue = contextlib.nullcontext() if address.primary_key else _merge_queue(address)
        with self._translating():
            self.connection: Any = self._duckdb.connect(address.path)
            try:
                self._set_limits(address)
                self._execute_all(CREATE_LOADS, CREATE_TURN_COUNTERS)
            except BaseException:
                self.connection.close()  # an unused open file would block other processes
                raise

    def _set_limits(self, address: DuckAddress) -> None:
        """Set the limits. They belong to the file, and are shared within the process: the last setting wins."""
        if address.memory_limit is not None:
            try:
                self.connection.execute(f"SET GLOBAL memory_limit = '{address.memory_limit}'")
            except self._duckdb.ParserException as error:
                raise invalid_memory_limit(address.memory_limit) from error
        if address.threads is not None:
            self.connection.execute(f"SET GLOBAL threads = {address.threads}")

    def _execute_all(self, *statements: str) -> None:
        """Execute idempotent statements. If two threads run one at the same time, one of them has to repeat it."""
        for statement in statements:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    self.connection.execute(statement)
                    break
                except self._duckdb.TransactionException:
                    if attempt == ATTEMPTS:
                        raise
                    time.sleep(MIN_PAUSE)

    def prepare(self, table: Table) -> None:
        columns = ", ".join(f'"{name}" {self._type(table, name)}' for name in table.columns)
        if self._address.primary_key:
            columns += f", PRIMARY KEY ({quoted(table.key)})"
        schemas = [f'CREATE SCHEMA IF NOT EXISTS "{schema}"' for schema in table.name.split(".")[:-1]]
        with self._lock, self._translating():
            self._execute_all(*schemas, f"CREATE TABLE IF NOT EXISTS {table.quoted} ({columns})")
            self._check(table)

    @staticmethod
    def _type(table: Table, column: str) -> str:
        return TYPES[table.columns[column]][0] + (" NOT NULL" if column in table.key else "")

    def _check(self, table: Table) -> None:
        found = self.connection.execute(f"DESCRIBE {table.quoted}").fetchall()
        check_columns(table, {column[0]: column[1] for column in found})
        self._keyed.pop(canonical_name(table), None)
        if not self._is_keyed(table) and self._address.primary_key:
            raise missing_unique_key(table, ", or open it with ?primary_key=no")

    def _is_keyed(self, table: Table) -> bool:
        """Return whether the table has a unique index over its key. Cached until `prepare` or a query."""
        name = canonical_name(table)
        if name not in self._keyed:
            self._keyed[name] = is_keyed(self.connection, table)
        return self._keyed[name]

    def _write(self, table: Table, load_id: str | None, work: Callable[[Transaction], T]) -> T:
        """Run the work. Without indexes, all merges into a file conflict, so they wait in a queue."""
        with self._queue:
            return self._run_with_retries(lambda: work(self._transaction(table)), table, load_id)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        with self._lock, self._translating():
            return self._run_in_transaction(lambda: work(DuckTransaction(self.connection, keyed=False)))

    def _transaction(self, table: Table) -> DuckTransaction:
        """Return the transaction. For a table without an index, it first updates the turn counter."""
        keyed = self._is_keyed(table)
        transaction = DuckTransaction(self.connection, keyed=keyed)
        if not keyed:
            transaction.count_turn(table)
        return transaction

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._translating():
            try:
                found: list[tuple[Any, ...]] = self.connection.execute(sql, list(values)).fetchall()
            finally:
                self._keyed.clear()
        return found

    def _run_with_retries(self, work: Callable[[], T], table: Table, load_id: str | None) -> T:
        """Run the work in a transaction. Repeat it if another thread of this process was faster."""
        pause = MIN_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._lock:
                    return self._run_in_transaction(work)
            except (self._duckdb.TransactionException, self._duckdb.ConstraintException) as error:
                if isinstance(error, self._duckdb.ConstraintException) and DUPLICATE_KEY not in str(error):
                    raise row_refused(table, load_id, error) from error
                if attempt == ATTEMPTS:
                    raise StoreUnavailable(
                        f"{self.name}: conflicts with other loads, {ATTEMPTS} times ({error})",
                        key=load_id,
                        hint="the call may be repeated",
                    ) from error
                time.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
            except self._duckdb.Error as error:
                raise self._translate(error) from error
        raise AssertionError  # the last attempt returned or raised

    def _run_in_transaction(self, work: Callable[[], T]) -> T:
        self.connection.execute("BEGIN")
        try:
            done = work()
            self.connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(self._duckdb.Error):  # the transaction has already ended
                self.connection.execute("ROLLBACK")
            raise
        return done

    def close(self) -> None:
        with self._lock:
            self.connection.close()

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except self._duckdb.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: Exception) -> OncewardError:
        if isinstance(error, self._duckdb.IOException) and "lock" in str(error).lower():
            return StoreUnavailable(
                f"{self.name}: another process has it open ({error})",
                hint="DuckDB allows one process at a time: load from one process, or use PostgreSQL",
            )
        if isinstance(error, self._duckdb.OutOfMemoryException):
            return StoreUnavailable(
                f"{self.name}: DuckDB does not have enough memory ({str(error).partition(chr(10))[0]})",
                hint="raise ?memory_limit=…, or use smaller batches; a primary key needs about 100 bytes of memory per"
                " row, which tables created with ?primary_key=no do not need",
            )
        if isinstance(error, self._duckdb.OperationalError):
            return StoreUnavailable(f"{self.name}: {error}", hint="the load may be repeated under the same id")
        return StoreBroken(f"{self.name}: {error}", hint="see DuckDB's message")


_queues: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
_creation_lock: Final = threading.Lock()


def _merge_queue(address: DuckAddress) -> contextlib.AbstractContextManager[Any]:
    """Return the reentrant lock that all warehouses on the file share. A memory database has its own lock."""
    new = threading.RLock()
    if address.path == MEMORY:
        return new
    with _creation_lock:
        queue: contextlib.AbstractContextManager[Any] = _queues.setdefault(os.path.realpath(address.path), new)
        return queue
