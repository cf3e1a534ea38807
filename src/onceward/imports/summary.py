"""The result of an import."""

from __future__ import annotations

from operator import add

from msgspec import Struct
from msgspec.structs import astuple


class Counts(Struct, frozen=True):
    """The number of rows by result. Every row has exactly one.

    `created`, `updated`: the row created or updated a person. `skipped`: nothing new. `rejected`: the row cannot be
    read, and is in the reject file. `to_review`: a new person who may be a known one; `onceward review` asks.
    """

    created: int = 0
    updated: int = 0
    skipped: int = 0
    rejected: int = 0
    to_review: int = 0

    @property
    def rows(self) -> int:
        """The number of rows of the file."""
        return sum(astuple(self))

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, astuple(self), astuple(other)))


class Summary(Struct, frozen=True):
    """The result of an import. `replayed` is true if this content was imported before, so nothing was done now.

    `name` identifies the import, `counts` are its rows by result, and `sha256` is the hash of the file. With `dry_run`,
    nothing was stored. `encoding` and `delimiter` are how the file was read.
    """

    name: str
    counts: Counts
    sha256: str
    replayed: bool = False
    resumed_at: int = 0
    """Rows that earlier runs had imported."""

    dry_run: bool = False
    rejects: str | None = None
    """The path of the reject file, if rows were rejected."""

    encoding: str = ""
    guessed: bool = False
    """True if the encoding is a guess: nothing in the file proves it."""

    delimiter: str = ""
    overlooked: dict[str, str] = {}
    """Columns that kept their own names, and the fields that they probably mean. Pass `map` to map them."""

    ignored: dict[str, int] = {}
    """How many values of each field could not be read, such as malformed addresses. Their rows were imported."""

    dates: str = ""
    """How dates were read: `dmy`, `mdy` or `ymd`, or empty if no column has dates in such an order."""

    dates_detected: bool = False
    """True if the order of dates was detected from the file, not passed as `dates`."""
    dates_ambiguous: bool = False
    """True if the file shows only dates like 03/04/1980, or both orders: day first was assumed."""

    earlier_edition: str | None = None
    """An earlier import whose name differs only by a date. Pass `name` if this file is its next edition."""

    def __str__(self) -> str:
        counts = self.counts
        return (
            f"created {counts.created:,} / updated {counts.updated:,} / skipped {counts.skipped:,} /"
            f" rejected {counts.rejected:,} / to review {counts.to_review:,}"
        )
