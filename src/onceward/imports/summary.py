"""What an import did."""

from __future__ import annotations

from msgspec import Struct


class Counts(Struct, frozen=True):
    """Every row is one of these."""

    created: int = 0
    updated: int = 0
    skipped: int = 0
    rejected: int = 0
    to_review: int = 0

    @property
    def rows(self) -> int:
        return self.created + self.updated + self.skipped + self.rejected + self.to_review

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.created + other.created,
            self.updated + other.updated,
            self.skipped + other.skipped,
            self.rejected + other.rejected,
            self.to_review + other.to_review,
        )


class Summary(Struct, frozen=True):
    """The end of an import. `replayed`: this content was imported before, and nothing was done now."""

    name: str
    counts: Counts
    sha256: str
    replayed: bool = False
    resumed_at: int = 0
    """Rows that an earlier run had done before it stopped."""

    dry_run: bool = False
    rejects: str | None = None
    """Where the rejected rows are, if there are any."""

    encoding: str = ""
    guessed: bool = False
    """Nothing in the file proves its encoding."""

    delimiter: str = ""
    overlooked: dict[str, str] = {}
    """Columns that were kept under their own names, and the fields that they probably are: `map` would say so."""

    def __str__(self) -> str:
        told = self.counts
        return (
            f"created {told.created:,} / updated {told.updated:,} / skipped {told.skipped:,} /"
            f" rejected {told.rejected:,} / to review {told.to_review:,}"
        )
