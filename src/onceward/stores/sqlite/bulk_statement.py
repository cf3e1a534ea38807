"""Execute one statement for many rows.

Every statement releases the GIL, and then has to get it back from the thread that took it. With many threads, that
takes longer than the statement itself, so one statement writes many rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

_SIZES: Final = (64, 32, 16, 8, 4, 2)
"""Rows per statement: few distinct statements, each prepared once. A remaining row is written by itself."""

_HAS_UPDATE_FROM: Final = sqlite3.sqlite_version_info >= (3, 33, 0)


class BulkStatement:
    """A statement for one row (`one`), and for many rows (`many`), where `{}` becomes `(?, …), (?, …) …`."""

    __slots__ = ("_many", "_row", "one")

    def __init__(self, one: str, many: str, width: int) -> None:
        self.one = one
        self._row = f"({', '.join('?' * width)})"
        self._many = {size: many.format(", ".join([self._row] * size)) for size in _SIZES} if _HAS_UPDATE_FROM else {}

    def run(self, cursor: sqlite3.Cursor, rows: Sequence[Sequence[Any]]) -> int:
        """Execute the statement for all rows. Return how many rows were written."""
        written = start = 0
        for size, text in self._many.items():
            while start + size <= len(rows):
                cursor.execute(text, tuple(chain.from_iterable(rows[start : start + size])))
                written += cursor.rowcount
                start += size
        if start < len(rows):
            cursor.executemany(self.one, rows[start:])
            written += cursor.rowcount
        return written
