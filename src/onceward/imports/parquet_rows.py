"""Rows of a Parquet file, read by DuckDB a batch at a time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from onceward.errors import MissingExtra, SourceError

from .hashed import opened
from .header import checked_header
from .ndjson_rows import as_text
from .rows import Bad, Read, Row
from .scan import PIECE

BATCH: Final = 1_000
MEMORY: Final = "100MB"
"""For DuckDB: one batch of rows needs a fraction of it."""


class ParquetRows:
    """A Parquet file. A row has no line there: its number counts."""

    def __init__(self, path: Path, size: int) -> None:
        duckdb = _driver()
        self._path = path
        self._size = size
        self._rows = 0
        opened(path).close()
        self._database: Any = duckdb.connect(config={"memory_limit": MEMORY, "threads": 1})
        try:
            name = re.sub(r"[*?[]", r"[\g<0>]", str(path.absolute())).replace("'", "''")  # a name, no pattern
            self._total: int = self._database.execute(f"SELECT count(*) FROM read_parquet('{name}')").fetchone()[0]  # noqa: S608 (quoted above)
            self._cursor = self._database.execute(f"SELECT * FROM read_parquet('{name}')")  # noqa: S608 (as above)
        except duckdb.Error as error:
            self._database.close()
            raise SourceError(f"{path.name} cannot be read as Parquet: {error}") from error
        self.columns = checked_header([column[0] for column in self._cursor.description], path.name)

    def __iter__(self) -> Iterator[Read]:
        while batch := self._fetched():
            for row in batch:
                self._rows += 1
                values = as_text({name: _plain(value) for name, value in zip(self.columns, row, strict=True)})
                if any("\0" in text for text in values.values()):
                    yield Bad(self._rows, "holds a NUL character", tuple(values.get(name, "") for name in self.columns))
                else:
                    yield Row(self._rows, values)

    def _fetched(self) -> list[tuple[Any, ...]]:
        try:
            found: list[tuple[Any, ...]] = self._cursor.fetchmany(BATCH)
        except _driver().Error as error:
            raise SourceError(f"{self._path.name} is damaged behind row {self._rows}: {error}") from error
        return found

    def position(self) -> int:
        return self._size * self._rows // max(self._total, 1)

    def digest(self) -> str:
        """DuckDB reads by itself and where it likes, so the file is hashed once more."""
        own = hashlib.sha256()
        with opened(self._path) as file:
            while piece := file.read(PIECE):
                own.update(piece)
        return own.hexdigest()

    def close(self) -> None:
        self._database.close()


def _plain(value: Any) -> Any:
    """What JSON has no word for, as text."""
    return value if value is None or isinstance(value, str | bool | int | float | list | dict) else str(value)


def _driver() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "a Parquet file is read by DuckDB, which is not installed", hint="install onceward[warehouse]"
        ) from error
    return duckdb
