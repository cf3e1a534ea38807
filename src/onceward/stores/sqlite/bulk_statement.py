"""One statement for many rows.

Every statement lets go of the interpreter, and then has to get it back from whoever has it meanwhile. Where many
threads call, that takes longer than the statement: so rows go by dozens.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

_SIZES: Final = (64, 16, 4)
"""Rows a statement: few statements, each prepared once. What is left goes row by row."""

_KNOWN: Final = sqlite3.sqlite_version_info >= (3, 33, 0)  # UPDATE … FROM


class Statement:
    """A statement on one row, and the same with the rows in the middle: `{}` stands for `(?, …), (?, …) …`."""

    __slots__ = ("_many", "_row", "one")

    def __init__(self, one: str, many: str, width: int) -> None:
        self.one = one
        self._row = f"({', '.join('?' * width)})"
        self._many = {size: many.format(", ".join([self._row] * size)) for size in _SIZES} if _KNOWN else {}

    def run(self, cursor: sqlite3.Cursor, rows: Sequence[Sequence[Any]]) -> int:
        """How many rows were written."""
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
