"""Open a file of rows in the right format."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, cast, get_args

from onceward.errors import SourceError

from .csv_rows import CsvRows
from .ndjson_rows import NdjsonRows
from .parquet_rows import ParquetRows
from .rows import RowReader
from .scan import FileScan

Format = Literal["csv", "ndjson", "parquet"]
FORMATS: Final = get_args(Format)
ENDINGS: Final[dict[str, Format]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
}


def format_of(path: Path, given: str | None = None) -> Format:
    """Return the given format, or the one of the file name's extension."""
    if given is not None:
        if given not in FORMATS:
            raise SourceError(f"there is no format {given!r}", hint=f"formats are: {', '.join(FORMATS)}")
        return cast("Format", given)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise SourceError(f"the format of {path.name} is unknown", hint=f"pass format=, one of: {', '.join(FORMATS)}")
    return ENDINGS[ending]


def open_rows(
    path: Path, scan: FileScan, kind: Format, *, delimiter: str | None = None, largest_row: int | None = None
) -> RowReader:
    """Open the rows of the file. `scan` is the result of scanning it."""
    if scan.size == 0:
        raise SourceError(f"{path.name} is empty", hint="nothing was imported")
    if kind == "csv":
        return CsvRows(path, scan, delimiter=delimiter, largest_row=largest_row)
    if delimiter is not None:
        raise SourceError(f"a file in the format {kind} has no delimiter", hint='leave it out, or pass format="csv"')
    if kind == "ndjson":
        return NdjsonRows(path, largest_row=largest_row)
    return ParquetRows(path, scan.size)
