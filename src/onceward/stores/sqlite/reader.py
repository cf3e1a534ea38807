"""Read many records in the dialect of SQLite: see `stores/sql_reading.py`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from onceward.stores.sql import Row
from onceward.stores.sql_reading import Dialect

from .rows import COLUMNS_WITHOUT_RESULT


class SQLiteReader:
    """Reads with a cursor, at this time."""

    prefix = ""

    def __init__(self, cursor: sqlite3.Cursor, now: int) -> None:
        self._cursor = cursor
        self._now = now
        self.dialect = Dialect(
            row_id="rowid",
            row_id_type=int,
            newest_order=("rowid",),
            newest_condition="rowid > 0",
            columns_without_result=COLUMNS_WITHOUT_RESULT,
            find="instr",
            hex_id="lower(hex(id))",
            now=str(now),
        )

    def placeholder(self, number: int, value: Any) -> str:  # noqa: ARG002 (SQLite counts them itself)
        return "?"

    async def select(self, text: str, values: Sequence[Any]) -> tuple[list[Row], int]:
        return self._cursor.execute(text, values).fetchall(), self._now
