"""Merge rows that may have been merged before: a row is new, the same again, or different under the same key.

One transaction on any engine: stage the rows, insert those with new keys, then find which of the others differ. In this
order, because an insert that conflicts with another writer's row waits for it and sees it afterwards. So of two
different rows under one key, exactly one is inserted, and the other is reported as different.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from onceward.errors import ConfigurationError, PayloadMismatch

from .batch import RowBatch, Tuple, checked_rows
from .port import Merged, Verdict
from .table import Table

MAX_NAMED_KEYS: Final = 5
"""The maximum number of keys in an error message."""


class MergeTransaction(Protocol):
    """An open transaction of the warehouse."""

    def stage(self, batch: RowBatch) -> None:
        """Fill the staging table of this transaction."""
        ...

    def insert(self, table: Table) -> set[Tuple]:
        """Insert the staged rows whose key is not in the table. Return their keys."""
        ...

    def differing(self, table: Table) -> set[Tuple]:
        """Return the keys of staged rows that differ from the existing row. A missing value equals any value."""
        ...


class Rows:
    """The rows of one merge. Different rows of the same key are compared in separate passes."""

    def __init__(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        if not table.same_by:
            raise ConfigurationError(
                f"{table.name} has no same_by, so rows cannot be compared", hint='for example same_by=("digest",)'
            )
        self.table = table
        self._rows = list(checked_rows(table, rows))
        names = tuple(table.columns)
        self._compared = [names.index(column) for column in table.same_by]

    def merge(self, transaction: MergeTransaction, *, whole: bool) -> Merged:
        """Merge the rows. May be called again in another transaction, if this one was rolled back."""
        verdicts: dict[int, Verdict] = {}
        remaining: Sequence[int] = range(len(self._rows))
        if whole:
            self._raise_mismatch(self._contradictions())
        while remaining:
            remaining = self._pass(transaction, remaining, verdicts)
        if whole:
            self._raise_mismatch([index for index in sorted(verdicts) if verdicts[index] == "different"])
        return Merged(tuple(verdicts[index] for index in sorted(verdicts)))

    def _pass(self, transaction: MergeTransaction, remaining: Sequence[int], verdicts: dict[int, Verdict]) -> list[int]:
        """Merge one row per key. Exact repeats get its verdict; return the other rows of the key for the next pass."""
        first: dict[Tuple, int] = {}
        repeats: list[tuple[int, int]] = []
        later: list[int] = []
        for index in remaining:
            earlier = first.setdefault(self._rows[index][0], index)
            if earlier == index:
                continue
            if self._are_equal(earlier, index):
                repeats.append((index, earlier))
            else:
                later.append(index)
        keys = sorted(first, key=repr)  # sorted, so that concurrent merges never deadlock
        transaction.stage(RowBatch(self.table, [self._rows[first[key]][1] for key in keys], len(keys), ""))
        inserted = transaction.insert(self.table)
        differing = transaction.differing(self.table) if len(inserted) < len(keys) else set()
        for key, index in first.items():
            verdicts[index] = "inserted" if key in inserted else "different" if key in differing else "same"
        for index, earlier in repeats:
            verdicts[index] = "different" if verdicts[earlier] == "different" else "same"
        return later

    def _contradictions(self) -> list[int]:
        """Return rows that differ from another row of this batch, which can then not be inserted as a whole.

        The table alone does not show this: an existing row may lack the value in which they differ, and equal both.
        """
        known: dict[Tuple, list[Any]] = {}
        found: list[int] = []
        for index, (key, row) in enumerate(self._rows):
            values = [row[column] for column in self._compared]
            before = known.setdefault(key, values)
            if any(None not in pair and pair[0] != pair[1] for pair in zip(before, values, strict=True)):
                found.append(index)
            known[key] = [new if old is None else old for old, new in zip(before, values, strict=True)]
        return found

    def _are_equal(self, one: int, other: int) -> bool:
        left, right = self._rows[one][1], self._rows[other][1]
        return all(left[column] == right[column] for column in self._compared)

    def _raise_mismatch(self, indexes: Sequence[int]) -> None:
        if not indexes:
            return
        keys = [", ".join(map(str, self._rows[index][0])) for index in indexes]
        more = f" and {len(keys) - MAX_NAMED_KEYS} more" if len(keys) > MAX_NAMED_KEYS else ""
        raise PayloadMismatch(
            f"{self.table.name} has another row under {'; '.join(keys[:MAX_NAMED_KEYS])}{more}: nothing was inserted",
            key=keys[0],
            hint="use new keys for new rows",
        )
