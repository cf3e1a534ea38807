"""Merging rows that may have come before: new, the same once more, or another one under the same key.

One transaction, whatever the engine: stage the rows, insert those whose key is not there, then ask which of the others
differ. In this order, because an insert that meets another writer's row waits for it and sees it afterwards: so of two
different rows under one key exactly one is put in, and the other is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from onceward.errors import ConfigurationError, PayloadMismatch

from .batch import RowBatch, Tuple, checked_rows
from .port import MergeResult, Verdict
from .table import Table

NAMED: Final = 5
"""Keys that an error names."""


class Comparing(Protocol):
    """A transaction that is open on the warehouse."""

    def stage(self, batch: RowBatch) -> None:
        """Fill a staging table of this transaction's own."""
        ...

    def insert(self, table: Table) -> set[Tuple]:
        """From the staging table those whose key is not in the table: their keys."""
        ...

    def differing(self, table: Table) -> set[Tuple]:
        """The keys of staged rows that do not agree with the row that is there; a missing value agrees with any."""
        ...


class Rows:
    """The rows of one merge, in passes: rows of one key that differ are compared one after the other."""

    def __init__(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        if not table.same_by:
            raise ConfigurationError(
                f"{table.name} does not say what makes a row the same", hint='such as same_by=("digest",)'
            )
        self.table = table
        self._rows = list(checked_rows(table, rows))
        names = tuple(table.columns)
        self._compared = [names.index(column) for column in table.same_by]

    def merge(self, comparing: Comparing, *, whole: bool) -> MergeResult:
        """May be called again, in another transaction, if this one came to nothing."""
        verdicts: dict[int, Verdict] = {}
        left: Sequence[int] = range(len(self._rows))
        if whole:
            self._refuse(self._contradictions())
        while left:
            left = self._pass(comparing, left, verdicts)
        if whole:
            self._refuse([place for place in sorted(verdicts) if verdicts[place] == "different"])
        return MergeResult(tuple(verdicts[place] for place in sorted(verdicts)))

    def _pass(self, comparing: Comparing, left: Sequence[int], verdicts: dict[int, Verdict]) -> list[int]:
        """One row a key. Its exact repeats share its fate; others of its key are left for the next pass."""
        first: dict[Tuple, int] = {}
        repeats: list[tuple[int, int]] = []
        later: list[int] = []
        for place in left:
            mine = first.setdefault(self._rows[place][0], place)
            if mine == place:
                continue
            if self._agree(mine, place):
                repeats.append((place, mine))
            else:
                later.append(place)
        keys = sorted(first, key=repr)  # so that two who merge at once never wait for each other in a circle
        comparing.stage(RowBatch(self.table, [self._rows[first[key]][1] for key in keys], len(keys), ""))
        inserted = comparing.insert(self.table)
        differ = comparing.differing(self.table) if len(inserted) < len(keys) else set()
        for key, place in first.items():
            verdicts[place] = "inserted" if key in inserted else "different" if key in differ else "same"
        for place, mine in repeats:
            verdicts[place] = "different" if verdicts[mine] == "different" else "same"
        return later

    def _contradictions(self) -> list[int]:
        """Rows that differ from another one of this very batch: it cannot go in as a whole, whatever is there.

        A row that is there may lack the value in which they differ, and would agree with both of them.
        """
        said: dict[Tuple, list[Any]] = {}
        found: list[int] = []
        for place, (key, row) in enumerate(self._rows):
            mine = [row[column] for column in self._compared]
            before = said.setdefault(key, mine)
            if any(None not in pair and pair[0] != pair[1] for pair in zip(before, mine, strict=True)):
                found.append(place)
            said[key] = [new if old is None else old for old, new in zip(before, mine, strict=True)]
        return found

    def _agree(self, one: int, other: int) -> bool:
        mine, theirs = self._rows[one][1], self._rows[other][1]
        return all(mine[column] == theirs[column] for column in self._compared)

    def _refuse(self, places: Sequence[int]) -> None:
        if not places:
            return
        keys = [", ".join(map(str, self._rows[place][0])) for place in places]
        more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
        raise PayloadMismatch(
            f"{self.table.name} has another row under {'; '.join(keys[:NAMED])}{more}: nothing was put in",
            key=keys[0],
            hint="what is new needs a key of its own",
        )
