"""The interface of readers: valid rows and invalid rows, each with its line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from onceward.errors import SourceError

MAX_REJECT_CELLS = 1_000
MAX_REJECT_TEXT = 10_000
"""Characters of a cell that the reject file keeps: enough to recognise the row. The source has the rest."""


class SourceRow(Struct, frozen=True, gc=False):
    """A valid row. Empty cells are left out."""

    line: int
    values: Mapping[str, str]


class BadRow(Struct, frozen=True, gc=False):
    """An invalid row: the reason, and the cells that could be read."""

    line: int
    reason: str
    cells: tuple[str, ...]


AnyRow: TypeAlias = SourceRow | BadRow


class RowReader(Protocol):
    """A file of rows that is read once, from start to end, in constant memory."""

    columns: tuple[str, ...]
    """The columns of the file; empty if every row has its own."""

    def __iter__(self) -> Iterator[AnyRow]: ...

    def position(self) -> int:
        """Return how many bytes of the file were read so far."""
        ...

    def digest(self) -> str:
        """Return the hash of the content; called at the end."""
        ...

    def close(self) -> None: ...


def truncate(text: str) -> str:
    """Return what the reject file keeps of a text."""
    return text if len(text) <= MAX_REJECT_TEXT else f"{text[:MAX_REJECT_TEXT]}…"


def checked_header(cells: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the column names. Raise if one is missing or repeated."""
    columns = tuple(cell.strip() for cell in cells)
    while columns and not columns[-1]:
        columns = columns[:-1]  # spreadsheets append empty ones; a row that fills one of them is rejected
    if not columns:
        raise SourceError(f"{name} has no header", hint="its first line must name the columns")
    nameless = [str(number) for number, column in enumerate(columns, 1) if not column]
    if nameless:
        raise SourceError(f"{name} has columns without a name: {', '.join(nameless)}", hint="name them in the header")
    duplicates = [column for column, count in Counter(columns).items() if count > 1]
    if duplicates:
        repeated = ", ".join(
            f"{column!r} ({' and '.join(str(number) for number, one in enumerate(columns, 1) if one == column)})"
            for column in duplicates
        )
        raise SourceError(f"{name} has columns that are repeated: {repeated}", hint="rename all but one of each")
    return columns
