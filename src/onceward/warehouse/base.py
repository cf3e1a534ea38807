"""What the warehouses on DuckDB, SQLite and PostgreSQL share: each call is one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .batch import Tuple, batch_of
from .load import check_load, check_selectable, key_batch, results_by_key
from .port import Fingerprinting, Loaded, Merged
from .row_merge import Rows
from .table import Table
from .transaction import Transaction

T = TypeVar("T")


class SqlWarehouse(ABC):
    """Implements the calls of `ComparesRows`. A subclass connects, creates tables and runs transactions."""

    @abstractmethod
    def _write(self, table: Table, load_id: str | None, work: Callable[[Transaction], T]) -> T:
        """Run the work in a transaction and commit. Raise `SourceError` if the table refuses a row."""

    @abstractmethod
    def _read(self, work: Callable[[Transaction], T]) -> T:
        """Run the work in a transaction that changes no table but the staging table."""

    def load(
        self, load_id: str, table: Table, rows: Iterable[Mapping[str, Any]], *, fingerprint: Fingerprinting = "rows"
    ) -> Loaded:
        batch = check_load(load_id, batch_of(table, rows), fingerprint)
        return self._write(table, load_id, lambda transaction: transaction.load(load_id, batch))

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> Merged:
        given = Rows(table, rows)
        return self._write(table, None, lambda transaction: given.merge(transaction, whole=whole))

    def known(self, table: Table, keys: Sequence[Any]) -> set[Any]:
        return set(self.found(table, keys, ()))

    def found(self, table: Table, keys: Sequence[Any], columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
        rows, wanted = key_batch(table, keys)
        selected = check_selectable(table, columns)

        def look_up(transaction: Transaction) -> list[Tuple]:
            transaction.stage(wanted)
            return transaction.found(table, selected)

        return results_by_key(table, keys, rows, self._read(look_up))

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        def fetch(transaction: Transaction) -> list[tuple[Any, ...]]:
            found: list[tuple[Any, ...]] = transaction.execute(sql, values).fetchall()
            return found

        return self._read(fetch)
