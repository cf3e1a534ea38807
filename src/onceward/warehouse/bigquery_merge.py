"""Merge and compare rows on BigQuery: find the existing rows, merge in one transaction, then find rows that differ.

Merged rows are never deleted or changed here, so what is read outside of the transaction stays true. If two processes
merge the same row at the same time, both may report `inserted`; of two different rows, only one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from . import bigquery_sql as sql
from .batch import RowBatch, Tuple
from .table import Table

Query = Callable[[str], list[tuple[Any, ...]]]
_NONE: Final[frozenset[Tuple]] = frozenset()


class BigQueryRowMerge:
    """`fill` stages a batch and returns the staging table; `merge_staged` merges it; `query` runs a query."""

    def __init__(
        self, target: str, fill: Callable[[RowBatch], str], merge_staged: Callable[[RowBatch], object], query: Query
    ) -> None:
        self._target = target
        self._staging = ""
        self._fill = fill
        self._merge_staged = merge_staged
        self._query = query
        self._batch: RowBatch | None = None
        self._differ: frozenset[Tuple] = _NONE

    def stage(self, batch: RowBatch) -> None:
        self._batch = batch
        self._staging = self._fill(batch)

    def insert(self, table: Table) -> set[Tuple]:
        assert self._batch is not None  # noqa: S101 (`stage` was called first)
        names = tuple(table.columns)
        indexes = [names.index(column) for column in table.key]
        before = set(self._query(sql.find_staged(self._target, self._staging, table)))
        self._merge_staged(self._batch)
        self._differ = frozenset(self._query(sql.find_differing(self._target, self._staging, table)))
        return {tuple(row[index] for index in indexes) for row in self._batch.rows} - before - self._differ

    def differing(self, table: Table) -> set[Tuple]:  # noqa: ARG002 (`insert` has queried it)
        return set(self._differ)
