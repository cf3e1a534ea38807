from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from onceward.protocol.ports import Clock
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.conformance import StoreConformance
from tests.conformance.sql_rows import filled


class TestSQLiteStore(StoreConformance):
    def open(self, directory: Path, clock: Clock) -> SQLiteStore:
        return SQLiteStore(directory / "once.db", clock=clock)

    def raw(self, directory: Path, id: bytes) -> Mapping[str, object] | None:
        with connected(directory) as raw:
            raw.row_factory = sqlite3.Row
            row = raw.execute("SELECT * FROM onceward_records WHERE id = ?", (id,)).fetchone()
        return None if row is None else filled(dict(row))

    def writes(self, directory: Path) -> int:
        """Use the file status: opening the file in this process would drop the store's locks."""
        files = [file.stat() for file in sorted(directory.glob("once.db*")) if not file.name.endswith("-shm")]
        return hash(tuple((file.st_size, file.st_mtime_ns) for file in files))

    def overwrite(self, directory: Path, id: bytes, **fields: Any) -> None:
        with connected(directory) as raw, raw:
            for name, value in fields.items():
                raw.execute(f"UPDATE onceward_records SET {name} = ? WHERE id = ?", (value, id))


@contextmanager
def connected(directory: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(directory / "once.db")) as connection:
        yield connection
