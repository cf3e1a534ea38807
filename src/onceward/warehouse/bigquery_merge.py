"""Comparing on BigQuery: which of the staged rows were there, then one transaction in our turn, then which differ.

Rows that are merged are never deleted or changed here, so what is read outside of the transaction stays true. Of two
who merge the same row at once both may be told that they put it in; of two different ones only one is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from . import bigquery_sql as sql
from .batch import RowBatch, Tuple
from .table import Table

Ask = Callable[[str], list[tuple[Any, ...]]]
_NONE: Final[frozenset[Tuple]] = frozenset()


class BigQueryComparing:
    """`fill` stages a batch, and says where; `put_in` merges it; `ask` is a question about it."""

    def __init__(
        self, target: str, fill: Callable[[RowBatch], str], put_in: Callable[[RowBatch], object], ask: Ask
    ) -> None:
        self._target = target
        self._staging = ""
        self._fill = fill
        self._put_in = put_in
        self._ask = ask
        self._batch: RowBatch | None = None
        self._differ: frozenset[Tuple] = _NONE

    def stage(self, batch: RowBatch) -> None:
        self._batch = batch
        self._staging = self._fill(batch)

    def insert(self, table: Table) -> set[Tuple]:
        assert self._batch is not None  # noqa: S101 (staged first)
        names = tuple(table.columns)
        places = [names.index(column) for column in table.key]
        before = set(self._ask(sql.find_staged(self._target, self._staging, table)))
        self._put_in(self._batch)
        self._differ = frozenset(self._ask(sql.find_differing(self._target, self._staging, table)))
        return {tuple(row[place] for place in places) for row in self._batch.rows} - before - self._differ

    def differing(self, table: Table) -> set[Tuple]:  # noqa: ARG002 (asked already, right behind the merge)
        return set(self._differ)
