"""Read the rows of a Parquet file with DuckDB, one batch at a time."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from onceward.errors import SourceError
from onceward.protocol.extras import import_extra

from .hashed_file import open_regular_file
from .ndjson_rows import as_text
from .rows import AnyRow, BadRow, SourceRow, checked_header
from .scan import CHUNK_BYTES

BATCH: Final = 1_000
MEMORY_LIMIT: Final = "100MB"
"""For DuckDB: one batch of rows needs a fraction of it."""


class ParquetRows:
    """A Parquet file. Its rows have no lines, so `line` is the number of the row."""

    def __init__(self, path: Path, size: int) -> None:
        duckdb = _driver()
        self._path = path
        self._size = size
        self._rows = 0
        open_regular_file(path).close()
        self._database: Any = duckdb.connect(config={"memory_limit": MEMORY_LIMIT, "threads": 1})
        try:
            self._database.execute("SET TimeZone = 'UTC'")  # the same text on every machine
            name = re.sub(r"[*?[]", r"[\g<0>]", str(path.absolute())).replace(
                "'", "''"
            )  # escaped: DuckDB takes glob patterns
            self._total: int = self._database.execute(f"SELECT count(*) FROM read_parquet('{name}')").fetchone()[0]  # noqa: S608 (quoted above)
            described = self._database.execute(f"DESCRIBE SELECT * FROM read_parquet('{name}')").fetchall()  # noqa: S608 (as above)
            self.columns = checked_header([column[0] for column in described], path.name)
            columns = ", ".join(_select_expression(column[0], column[1]) for column in described)
            self._cursor = self._database.execute(f"SELECT {columns} FROM read_parquet('{name}')")  # noqa: S608 (as above)
        except duckdb.Error as error:
            self._database.close()
            raise SourceError(f"{path.name} cannot be read as Parquet: {error}") from error
        except SourceError:
            self._database.close()
            raise

    def __iter__(self) -> Iterator[AnyRow]:
        while batch := self._fetch():
            for row in batch:
                self._rows += 1
                values = as_text({name: _csv_value(value) for name, value in zip(self.columns, row, strict=True)})
                if any("\0" in text for text in values.values()):
                    yield BadRow(
                        self._rows, "holds a NUL character", tuple(values.get(name, "") for name in self.columns)
                    )
                else:
                    yield SourceRow(self._rows, values)

    def _fetch(self) -> list[tuple[Any, ...]]:
        try:
            found: list[tuple[Any, ...]] = self._cursor.fetchmany(BATCH)
        except _driver().Error as error:
            raise SourceError(f"{self._path.name} is damaged after row {self._rows}: {error}") from error
        return found

    def position(self) -> int:
        return self._size * self._rows // max(self._total, 1)

    def digest(self) -> str:
        """Hash the file once more: DuckDB opens it itself, and reads it in any order."""
        hashed = hashlib.sha256()
        with open_regular_file(self._path) as file:
            while piece := file.read(CHUNK_BYTES):
                hashed.update(piece)
        return hashed.hexdigest()

    def close(self) -> None:
        self._database.close()


def _select_expression(column: str, kind: str) -> str:
    """Return the SQL expression of a column. Types that Python lacks, or needs a module for, are converted to text."""
    quoted = '"' + column.replace('"', '""') + '"'
    if kind.endswith(("]", ")")) and not kind.startswith("DECIMAL"):
        return f"CAST(to_json({quoted}) AS VARCHAR)"
    return f"CAST({quoted} AS VARCHAR)" if kind.endswith("WITH TIME ZONE") else quoted


def _csv_value(value: Any) -> Any:
    """Convert a value as for CSV. NaN is treated as missing: as an id, it would be the same for all rows."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _driver() -> Any:
    problem = "a Parquet file is read by DuckDB, which is not installed"
    return import_extra("duckdb", problem, "install onceward[warehouse]")
