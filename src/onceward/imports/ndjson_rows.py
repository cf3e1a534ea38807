"""Rows of an NDJSON file: one JSON object a line."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from onceward.errors import SourceError

from .hashed import BUFFER, HashedFile
from .rows import Bad, Read, Row, cut

LARGEST: Final = 1 << 20
"""Bytes of a row, unless said otherwise: a line without an end must not fill the memory."""

BOM: Final = b"\xef\xbb\xbf"


class NdjsonRows:
    """An NDJSON file, in UTF-8 as the format demands."""

    columns: tuple[str, ...] = ()

    def __init__(self, path: Path, *, largest_row: int | None = None) -> None:
        self._limit = LARGEST if largest_row is None else largest_row
        self._name = path.name
        self._raw = HashedFile(path)
        self._file = io.BufferedReader(self._raw, BUFFER)
        self._line = 0

    def __iter__(self) -> Iterator[Read]:
        while line := self._file.readline(self._limit + 1):
            self._line += 1
            if self._line == 1:
                line = line.removeprefix(BOM)
            if len(line) > self._limit:
                yield self._skip(line)
            elif not line.isspace() and line:
                yield self._read(line)
        if self._line == 0:
            raise SourceError(f"{self._name} is empty", hint="it needs one JSON object a line")

    def _read(self, line: bytes) -> Read:
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._bad(f"is no JSON: {error}", line)
        if not isinstance(found, dict):
            return self._bad(f"is no JSON object, but {type(found).__name__}", line)
        if b"\\u0000" in line or b"\0" in line:
            return self._bad("holds a NUL character", line)
        return Row(self._line, as_text(found))

    def _skip(self, begin: bytes) -> Bad:
        size, piece = len(begin), begin
        while not piece.endswith(b"\n") and (piece := self._file.readline(self._limit)):
            size += len(piece)
        return self._bad(f"the row has {size:,} bytes; {self._limit:,} are allowed (largest_row)", begin)

    def _bad(self, reason: str, line: bytes) -> Bad:
        return Bad(self._line, reason, (cut(line.decode("utf-8", "surrogateescape").rstrip("\r\n")),))

    def position(self) -> int:
        return self._raw.count

    def digest(self) -> str:
        return self._raw.digest()

    def close(self) -> None:
        self._file.close()


def as_text(values: Mapping[str, Any]) -> dict[str, str]:
    """Every value as a CSV file would have it; what is missing, null or empty is no value."""
    return {str(name): text for name, value in values.items() if (text := _text(value))}


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return msgspec.json.encode(value, order="deterministic").decode()
