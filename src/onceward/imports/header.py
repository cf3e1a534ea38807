"""The names of the columns, and what each of them means for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from onceward.errors import SourceError


def checked_header(cells: Sequence[str], name: str) -> tuple[str, ...]:
    """The columns of a file, each with a name of its own."""
    columns = tuple(cell.strip() for cell in cells)
    while columns and not columns[-1]:
        columns = columns[:-1]  # spreadsheets leave empty ones behind; their rows are told if they are not
    if not columns:
        raise SourceError(f"{name} has no header", hint="its first line must name the columns")
    nameless = [str(place) for place, column in enumerate(columns, 1) if not column]
    if nameless:
        raise SourceError(f"{name} has columns without a name: {', '.join(nameless)}", hint="name them in the header")
    twice = [column for column, number in Counter(columns).items() if number > 1]
    if twice:
        places = ", ".join(
            f"{column!r} ({' and '.join(str(place) for place, one in enumerate(columns, 1) if one == column)})"
            for column in twice
        )
        raise SourceError(f"{name} has columns that are repeated: {places}", hint="rename all but one of each")
    return columns
