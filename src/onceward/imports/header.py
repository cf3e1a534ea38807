"""Check the column names of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from onceward.errors import SourceError


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
