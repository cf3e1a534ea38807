"""DuckDB as the warehouse: a file, opened by one process at a time, or the memory of this one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from onceward.errors import MissingExtra, OncewardError, StoreBroken, StoreUnavailable

from .batch import Tuple, batch_of
from .duck_merge import MAKE_TURNS, DuckMerging
from .duck_queue import line_of
from .duck_table import TYPES, is_keyed, plain_name, shown_as
from .duck_url import DuckAddress, no_amount
from .load import LOADS, by_key, checked, load_in, no_key, plain_columns, refuse_other_columns, refused, wanted_keys
from .port import Fingerprinting, Loaded, MergeResult
from .row_merge import Rows
from .table import Table, quoted

T = TypeVar("T")

ATTEMPTS: Final = 20
FIRST_PAUSE: Final = 0.005  # seconds, doubled up to the longest: somebody else in this process is loading, too
LONGEST_PAUSE: Final = 0.2

TAKEN: Final = "Duplicate key"
"""What DuckDB says to the later one of two that insert the same row at once."""

MAKE_LOADS: Final = f"""
CREATE TABLE IF NOT EXISTS {LOADS} (
    load_id VARCHAR PRIMARY KEY, table_name VARCHAR NOT NULL, digest VARCHAR NOT NULL,
    given BIGINT NOT NULL, kept BIGINT NOT NULL, inserted BIGINT, updated BIGINT,
    loaded_at TIMESTAMPTZ NOT NULL DEFAULT current_timestamp
)"""


class DuckWarehouse:
    """Loads of one process take turns: DuckDB itself uses all cores for one of them."""

    def __init__(self, place: DuckAddress) -> None:
        self._duckdb = _driver()
        self.name = place.name
        self._place = place
        self._turn = threading.Lock()
        self._keyed: dict[str, bool] = {}
        self._line = contextlib.nullcontext() if place.primary_key else line_of(place)
        try:
            self.connection: Any = self._duckdb.connect(place.path)
        except self._duckdb.Error as error:
            raise self._explained(error) from error
        try:
            self._limit(place)
            self._make(MAKE_LOADS, MAKE_TURNS)
        except self._duckdb.Error as error:
            self.connection.close()  # others must not wait for a file that nobody works with
            raise self._explained(error) from error
        except BaseException:
            self.connection.close()
            raise

    def _limit(self, place: DuckAddress) -> None:
        """Settings of the file, shared by all in this process who have it open: the last one to come decides."""
        if place.memory_limit is not None:
            try:
                self.connection.execute(f"SET GLOBAL memory_limit = '{place.memory_limit}'")
            except self._duckdb.ParserException as error:
                raise no_amount(place.memory_limit) from error
        if place.threads is not None:
            self.connection.execute(f"SET GLOBAL threads = {place.threads}")

    def _make(self, *statements: str) -> None:
        """Each is done if it was done before; of two in this process who do it at once, one has to repeat it."""
        for statement in statements:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    self.connection.execute(statement)
                    break
                except self._duckdb.TransactionException:
                    if attempt == ATTEMPTS:
                        raise
                    time.sleep(FIRST_PAUSE)

    def prepare(self, table: Table) -> None:
        columns = ", ".join(f'"{name}" {self._type(table, name)}' for name in table.columns)
        if self._place.primary_key:
            columns += f", PRIMARY KEY ({quoted(table.key)})"
        with self._turn:
            try:
                schemas = [f'CREATE SCHEMA IF NOT EXISTS "{schema}"' for schema in table.name.split(".")[:-1]]
                self._make(*schemas, f"CREATE TABLE IF NOT EXISTS {table.quoted} ({columns})")
                self._check(table)
            except self._duckdb.Error as error:
                raise self._explained(error) from error

    @staticmethod
    def _type(table: Table, column: str) -> str:
        return TYPES[table.columns[column]][0] + (" NOT NULL" if column in table.key else "")

    def _check(self, table: Table) -> None:
        found = self.connection.execute(f"DESCRIBE {table.quoted}").fetchall()
        refuse_other_columns(table, {column[0]: column[1] for column in found})
        self._keyed.pop(plain_name(table), None)
        if not self._is_keyed(table) and self._place.primary_key:
            raise no_key(table, ", or open it with ?primary_key=no")

    def _is_keyed(self, table: Table) -> bool:
        """Asked for once, and again after `prepare`, and after a query, which may have changed it."""
        name = plain_name(table)
        if name not in self._keyed:
            self._keyed[name] = is_keyed(self.connection, table)
        return self._keyed[name]

    def load(
        self, load_id: str, table: Table, rows: Iterable[Mapping[str, Any]], *, fingerprint: Fingerprinting = "rows"
    ) -> Loaded:
        batch = checked(load_id, batch_of(table, rows), fingerprint)
        return self._in_turn(lambda: load_in(self._merging(table), load_id, batch), table, load_id)

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> MergeResult:
        given = Rows(table, rows)
        return self._in_turn(lambda: given.merge(self._merging(table), whole=whole), table, None)

    def _merging(self, table: Table) -> DuckMerging:
        """Without an index, whoever merges takes a turn first."""
        keyed = self._is_keyed(table)
        merging = DuckMerging(self.connection, keyed=keyed)
        if not keyed:
            merging.take_turn(table)
        return merging

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._turn:
            try:
                found: list[tuple[Any, ...]] = self.connection.execute(sql, list(values)).fetchall()
            except self._duckdb.Error as error:
                raise self._explained(error) from error
            finally:
                self._keyed.clear()
        return found

    def _in_turn(self, work: Callable[[], T], table: Table, load_id: str | None) -> T:
        """Where all rows of a table are in each other's way, one waits for the other, however long that takes."""
        with self._line:
            return self._repeated(work, table, load_id)

    def _repeated(self, work: Callable[[], T], table: Table, load_id: str | None) -> T:
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
        asked = (*table.key, *plain_columns(table, columns))
        shown = tuple(shown_as(f't."{name}"', table.columns[name]) for name in asked)
        looking = DuckMerging(self.connection, keyed=False)

        def look() -> list[Tuple]:
            looking.stage(wanted)
            answers: list[Tuple] = self.connection.execute(looking.matching(table, shown)).fetchall()
            return answers

        with self._turn:
            try:
                answers = self._committed(look)
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
        if isinstance(error, self._duckdb.OutOfMemoryException):
            return StoreUnavailable(
                f"{self.name}: DuckDB has not enough memory ({str(error).partition(chr(10))[0]})",
                hint="raise ?memory_limit=…, or take smaller batches; a primary key takes about 100 bytes a row, which"
                " stay in memory: tables that are made with ?primary_key=no do without",
            )
        if isinstance(error, self._duckdb.OperationalError):
            return StoreUnavailable(f"{self.name}: {error}", hint="the load may be repeated under the same id")
        return StoreBroken(f"{self.name}: {error}", hint="look at the message of DuckDB")


def _roll_back(connection: Any, duckdb: Any) -> None:
    with contextlib.suppress(duckdb.Error):  # it is over already
        connection.execute("ROLLBACK")


def _driver() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise MissingExtra("DuckDB is not installed", hint="install onceward[warehouse]") from error
    return duckdb
