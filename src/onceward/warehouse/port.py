"""What a warehouse must offer, and what a load answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from .table import Table

Fingerprinting = Literal["rows", "none"]


class Loaded(Struct, frozen=True):
    """What a load did; `replayed`: what it did the first time, and nothing now."""

    load_id: str
    rows: int
    duplicates: int
    """Rows of the batch whose key had come in it already."""

    inserted: int
    updated: int
    unchanged: int
    replayed: bool = False


Verdict = Literal["inserted", "same", "different"]


class MergeResult(Struct, frozen=True):
    """What became of each row, in their order: put in, the same as the one that is there, or another one."""

    verdicts: Sequence[Verdict]

    @property
    def inserted(self) -> int:
        """How many rows are new."""
        return self.verdicts.count("inserted")

    @property
    def same(self) -> int:
        """How many came before, and are the same."""
        return self.verdicts.count("same")

    @property
    def different(self) -> int:
        """How many were refused: there is another row under their key."""
        return self.verdicts.count("different")


class Warehouse(Protocol):
    """Where batches of rows are merged. A load and its record are one transaction, so a load id has one effect."""

    name: str

    def prepare(self, table: Table) -> None:
        """Make the table if it is not there; if it is, its columns and its key must be these."""
        ...

    def load(
        self, load_id: str, table: Table, rows: Iterable[Mapping[str, Any]], *, fingerprint: Fingerprinting = "rows"
    ) -> Loaded:
        """Merge the rows, once per load id. The same id with other rows is a `PayloadMismatch`.

        With `fingerprint="none"` the id alone counts: for rows that are made anew on each attempt, and may differ.
        """
        ...

    def known(self, table: Table, keys: Sequence[Any]) -> set[Any]:
        """Which of these keys are in the table: one question for all. A key of several columns is a tuple."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ComparesRows(Warehouse, Protocol):
    """Also tells the same row that comes again from another row under its key, and answers questions."""

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> MergeResult:
        """Put in the rows whose key is new, and tell of the others whether they agree with what is there (`same_by`).

        No load id: a row that comes again is recognised by its key, in whichever batch it comes. `whole`: all of it or
        nothing; a row that differs is then a `PayloadMismatch` that names the keys, and nothing is put in.
        """
        ...

    def found(self, table: Table, keys: Sequence[Any], columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
        """These columns, none of them time or json, of the rows under these keys: one question for all."""
        ...

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that a SELECT of your own answers, with `?` for each value on every engine."""
        ...
