"""Detect the delimiter of a CSV file: the one with which the first rows have the same number of cells."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import islice
from typing import Final

from onceward.errors import SourceError

CANDIDATES: Final = (",", ";", "\t", "|")
"""The first one wins if several fit equally well."""

SAMPLE: Final = 1 << 16  # characters
SAMPLE_ROWS: Final = 100
DECLARATION: Final = "sep="
"""Spreadsheets may declare the delimiter on a first line, before the header: `sep=;`."""


def declared_delimiter(first_line: str) -> str | None:
    """Return the delimiter that the first line declares, or None."""
    line = first_line.rstrip("\r\n")
    is_declared = line.lower().startswith(DECLARATION) and len(line) == len(DECLARATION) + 1
    return line[len(DECLARATION) :] if is_declared else None


def detect_delimiter(sample: str) -> str:
    """Return the delimiter of these first lines; a comma if there is only one column."""
    lines = sample.splitlines(keepends=True)
    if len(sample) >= SAMPLE:
        lines = lines[:-1] or lines  # the last one may be incomplete
    scores = [(*_score(lines, one), -number) for number, one in enumerate(CANDIDATES)]
    best = max(scores)
    return CANDIDATES[-best[-1]] if best[1] > 1 else ","


def _score(lines: Sequence[str], delimiter: str) -> tuple[float, int]:
    """Return the share of rows that are as wide as the header, and that width. One column proves nothing: 0."""
    try:
        rows = [row for row in islice(csv.reader(lines, delimiter=delimiter), SAMPLE_ROWS) if row]
    except csv.Error:
        return (0.0, 0)
    if not rows or len(rows[0]) < 2:  # noqa: PLR2004 (one column)
        return (0.0, 0)
    width = len(rows[0])
    return (sum(len(row) == width for row in rows) / len(rows), width)


def checked_delimiter(delimiter: str) -> str:
    character = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if len(character) != 1 or character in '"\r\n\0':
        raise SourceError(f"{delimiter!r} cannot separate cells", hint="pass one character, or: tab")
    return character
