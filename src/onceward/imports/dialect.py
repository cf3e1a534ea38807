"""Which character separates the cells: the one under which the first rows agree about their width."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import islice
from typing import Final

from onceward.errors import SourceError

CANDIDATES: Final = (",", ";", "\t", "|")
"""In this order where several fit equally well."""

SAMPLE: Final = 1 << 16  # characters
ROWS: Final = 100
TOLD: Final = "sep="
"""Spreadsheets may say it themselves, on a first line that is no row: `sep=;`."""


def told_by(first_line: str) -> str | None:
    """The delimiter that the file itself names, if its first line does."""
    line = first_line.rstrip("\r\n")
    return line[len(TOLD) :] if line.lower().startswith(TOLD) and len(line) == len(TOLD) + 1 else None


def detected(sample: str) -> str:
    """The delimiter of these first lines; a comma if there is only one column."""
    lines = sample.splitlines(keepends=True)
    if len(sample) >= SAMPLE:
        lines = lines[:-1] or lines  # the last one may be cut
    scores = [(*_score(lines, one), -place) for place, one in enumerate(CANDIDATES)]
    best = max(scores)
    return CANDIDATES[-best[-1]] if best[1] > 1 else ","


def _score(lines: Sequence[str], delimiter: str) -> tuple[float, int]:
    """The share of rows that are as wide as the header, and that width. One column agrees with itself: no evidence."""
    try:
        rows = [row for row in islice(csv.reader(lines, delimiter=delimiter), ROWS) if row]
    except csv.Error:
        return (0.0, 0)
    if not rows or len(rows[0]) < 2:  # noqa: PLR2004 (one column)
        return (0.0, 0)
    width = len(rows[0])
    return (sum(len(row) == width for row in rows) / len(rows), width)


def checked(delimiter: str) -> str:
    given = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if len(given) != 1 or given in '"\r\n\0':
        raise SourceError(f"{delimiter!r} cannot separate cells", hint="give one character, or: tab")
    return given
