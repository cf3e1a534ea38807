"""Read the rows of an NDJSON file: one JSON object per line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from onceward.errors import SourceError

from .hashed_file import BUFFER, HashedFile
from .rows import AnyRow, BadRow, SourceRow, truncate
from .scan import SURROGATE

MAX_ROW_BYTES: Final = 1 << 20
"""The default limit: a line without an end must not fill the memory."""

_encode = msgspec.json.Encoder(order="deterministic", decimal_format="number").encode

BOM: Final = b"\xef\xbb\xbf"


class NdjsonRows:
    """An NDJSON file. The format requires UTF-8."""

    columns: tuple[str, ...] = ()

    def __init__(self, path: Path, *, largest_row: int | None = None) -> None:
        self._limit = MAX_ROW_BYTES if largest_row is None else largest_row
        self._name = path.name
        self._raw = HashedFile(path)
        self._file = io.BufferedReader(self._raw, BUFFER)
        self._line = 0

    def __iter__(self) -> Iterator[AnyRow]:
        while line := self._file.readline(self._limit + 1):
            self._line += 1
            if self._line == 1:
                line = line.removeprefix(BOM)
            if len(line) > self._limit:
                yield self._skip(line)
            elif not line.isspace() and line:
                yield self._read(line)
        if self._line == 0:
            raise SourceError(f"{self._name} is empty", hint="it needs one JSON object per line")

    def _read(self, line: bytes) -> AnyRow:
        try:
            values = as_text(_decode(line.decode()))
        except ArithmeticError:  # of Decimal: its exponents have a limit
            return self._bad("cannot be read: it has a number with too large an exponent", line)
        except (ValueError, RecursionError) as error:
            return self._bad(f"cannot be read: {error}", line)
        if b"\\u" in line and (problem := _text_problem(values)):  # only escapes can produce invalid text
            return self._bad(problem, line)
        return SourceRow(self._line, values)

    def _skip(self, begin: bytes) -> BadRow:
        size, piece = len(begin), begin
        while not piece.endswith(b"\n") and (piece := self._file.readline(self._limit)):
            size += len(piece)
        return self._bad(f"the row has {size:,} bytes; {self._limit:,} are allowed (largest_row)", begin)

    def _bad(self, reason: str, line: bytes) -> BadRow:
        return BadRow(self._line, reason, (truncate(line.decode("utf-8", "surrogateescape").rstrip("\r\n")),))

    def position(self) -> int:
        return self._raw.count

    def digest(self) -> str:
        return self._raw.digest()

    def close(self) -> None:
        self._file.close()


def _decode(text: str) -> Mapping[str, Any]:
    """Return the JSON object. Raise if a member is repeated. Numbers keep their notation."""
    found = json.loads(text, object_pairs_hook=_object, parse_float=Decimal, parse_constant=_reject_constant)
    if not isinstance(found, dict):
        raise ValueError(f"it is not a JSON object, but {type(found).__name__}")  # noqa: TRY004 (about the file)
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


def _text_problem(values: Mapping[str, str]) -> str | None:
    for text in (*values, *values.values()):
        if "\0" in text:
            return "holds a NUL character"
        if SURROGATE.search(text):
            return "holds half of a character"
    return None


def as_text(values: Mapping[str, Any]) -> dict[str, str]:
    """Return every value as a CSV file would contain it. Missing, null and empty values are left out."""
    return {str(name): text for name, value in values.items() if (text := _text(value))}


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return str(value)
    return _encode(value).decode()
