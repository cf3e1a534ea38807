"""What a warehouse must offer, and what a load answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

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
