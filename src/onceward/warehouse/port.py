"""The interface of a warehouse, and the results of loads and merges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from .table import Table

Fingerprinting = Literal["rows", "none"]


class Loaded(Struct, frozen=True):
    """The result of a load. `replayed`: the result of the first load with this id; this call changed nothing.

    Of the `rows` of the load, `duplicates` had the key of an earlier row in it. The others were `inserted`, `updated`
    or `unchanged`.
    """

    load_id: str
    """The id that identifies the load: a second load with this id is a replay."""
    rows: int
    duplicates: int
    """Rows whose key occurs earlier in the batch."""

    inserted: int
    updated: int
    unchanged: int
    replayed: bool = False


Verdict = Literal["inserted", "same", "different"]


class Merged(Struct, frozen=True):
    """The verdict for each row, in input order: inserted, the same as the existing row, or different from it."""

    verdicts: Sequence[Verdict]
    """One per row: `inserted`, `same` or `different`."""

    @property
    def inserted(self) -> int:
        """The number of new rows."""
        return self.verdicts.count("inserted")

    @property
    def same(self) -> int:
        """The number of rows that are the same as the existing row."""
        return self.verdicts.count("same")

    @property
    def different(self) -> int:
        """The number of rows that were refused, because their key has a different row."""
        return self.verdicts.count("different")


class Warehouse(Protocol):
    """Merges batches of rows into tables. A load and its record are one transaction, so a load id has one effect."""

    name: str

    def prepare(self, table: Table) -> None:
        """Create the `table` if it does not exist. An existing table must have these columns and this key.

        Raise `ConfigurationError` if it has others.
        """
        ...

    def load(
        self, load_id: str, table: Table, rows: Iterable[Mapping[str, Any]], *, fingerprint: Fingerprinting = "rows"
    ) -> Loaded:
        """Merge rows into a table, once per load id.

        Args:
            load_id: Identifies the load, such as the id of a file or message.
            table: The table. It must exist.
            rows: The rows, as mappings from columns to values. They are read once.
            fingerprint: `"rows"` compares them with those of an earlier load with this id. `"none"` does not: for rows
                that are generated on each attempt and may differ.

        Returns:
            How many rows were inserted, updated or left unchanged, and whether the load was a replay.

        Raises:
            PayloadMismatch: The load id was used before with other rows.
        """
        ...

    def known(self, table: Table, keys: Sequence[Any]) -> set[Any]:
        """Return which of these `keys` are in the `table`, by one query. A key of several columns is a tuple."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@runtime_checkable
class ComparesRows(Warehouse, Protocol):
    """A warehouse that also compares rows with existing ones, and runs queries."""

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> Merged:
        """Insert `rows` with new keys into a `table`. For the others, return whether they equal the existing row.

        `same_by` of the table says which columns are compared. No load id is needed: a repeated row is recognised by
        its key, in any batch. `whole`: all or nothing; a row that differs then raises a `PayloadMismatch` that names
        the keys, and nothing is inserted.
        """
        ...

    def found(self, table: Table, keys: Sequence[Any], columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
        """Return these `columns` of the rows of a `table` with these `keys`, by one query.

        Columns of type time or json cannot be returned. Keys without a row are absent.
        """
        ...

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a SELECT and return its rows. `sql` has a `?` for each of the `values`, on every engine."""
        ...
