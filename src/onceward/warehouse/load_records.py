"""The records of loads in SQLite and DuckDB, whose connections accept the same statements."""

from __future__ import annotations

from typing import Any

from .batch import RowBatch
from .load import LOADS


class LoadRecords:
    """Claims and records loads inside an open transaction, which holds the write lock or conflicts at its commit."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def claim(self, load_id: str, batch: RowBatch) -> tuple[str, str, tuple[int, int, int, int]] | None:
        before = self._connection.execute(
            f"SELECT table_name, digest, given, kept, inserted, updated FROM {LOADS} WHERE load_id = ?", [load_id]
        ).fetchone()
        if before is not None:
            return before[0], before[1], before[2:]
        self._connection.execute(
            f"INSERT INTO {LOADS} (load_id, table_name, digest, given, kept) VALUES (?, ?, ?, ?, ?)",
            [load_id, batch.table.name, batch.digest, batch.given, len(batch.rows)],
        )
        return None

    def record(self, load_id: str, inserted: int, updated: int) -> None:
        self._connection.execute(
            f"UPDATE {LOADS} SET inserted = ?, updated = ? WHERE load_id = ?", [inserted, updated, load_id]
        )
