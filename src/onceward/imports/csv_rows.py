"""Rows of a CSV file: bounded in memory whatever is in it, and every row that cannot be read is told with its line.

The standard library's reader decides what a row is. We hand it line by line, and know where each row begins; one that
grows beyond the limit is skipped up to its end. Up to the closing quote, not the next line: what stands inside of a
quoted cell must never be read as rows of its own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onceward.errors import SourceError

from .dialect import SAMPLE, checked, detected, told_by
from .hashed_file import BUFFER, HashedFile
from .header import checked_header
from .reject_file import COLUMNS as REJECTED
from .reject_file import unguarded
from .rows import MOST_CELLS_KEPT, Bad, Read, Row, cut
from .scan import ESCAPED, SURROGATE, Scan

QUOTE: Final = '"'
SHOWN_BYTES: Final = 3


class CsvRows:
    """A CSV file with a header."""

    def __init__(self, path: Path, scan: Scan, *, delimiter: str | None = None, largest_row: int | None = None) -> None:
        self._limit = _limit(largest_row)
        self._raw = HashedFile(path)
        errors = "surrogatepass" if scan.encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"
        buffered = io.BufferedReader(self._raw, BUFFER)
        self._text = io.TextIOWrapper(buffered, scan.encoding, errors, newline="")
        self._encoding = scan.encoding
        self._name = path.name
        self._line = 0  # of the file, counted from 1
        self._record: list[str] = []  # the lines of the row that is being read
        self._ahead: list[str] = []  # lines that were looked at, but not read as rows yet
        try:
            self._begin(None if delimiter is None else checked(delimiter))
        except BaseException:
            self.close()
            raise

    # ── the header ──

    def _begin(self, delimiter: str | None) -> None:
        first = self._readline()
        if not first:
            raise SourceError(f"{self._name} is empty", hint="it needs a line with the names of the columns")
        told = told_by(first)
        self._line = 1 if told else 0
        sample = [] if told else [first]
        size = 0
        while size < SAMPLE and (line := self._readline()):
            sample.append(line)
            size += len(line)
        self._ahead = sample[::-1]
        self.delimiter = delimiter or told or detected("".join(sample)[:SAMPLE])
        header = next((read for read in self._rows() if read), None)
        if header is None:
            raise SourceError(f"{self._name} has no header", hint="it needs a line with the names of the columns")
        if isinstance(header, Bad):
            raise SourceError(f"the header of {self._name} cannot be read: {header.reason}")
        columns = checked_header(header, self._name)
        self._mended = columns[: len(REJECTED)] == REJECTED  # our own reject file: its additions are taken off again
        self.columns = tuple(unguarded(columns[len(REJECTED) :])) if self._mended else columns

    # ── rows ──

    def __iter__(self) -> Iterator[Read]:
        columns, width = self.columns, len(self.columns)
        for cells in self._cells():
            if isinstance(cells, Bad):
                yield cells
            elif len(cells) == width or (len(cells) > width and not any(cells[width:])):
                line = self._line - len(self._record) + 1
                yield Row(line, {name: cell for name, cell in zip(columns, cells, strict=False) if cell})
            elif cells:
                yield self._bad(f"has {len(cells)} cells where the header has {width}", cells)

    def _cells(self) -> Iterator[list[str] | Bad]:
        if not self._mended:
            return self._rows()
        own = len(REJECTED)
        return (cells if isinstance(cells, Bad) else unguarded(cells[own:]) for cells in self._rows())

    def _rows(self) -> Iterator[list[str] | Bad]:
        """Cells, or why there are none. `_record` holds the lines they came from."""
        while True:
            self._record.clear()
            reader = csv.reader(self._lines(), delimiter=self.delimiter)
            try:
                for cells in reader:
                    flaw = self._flaw()
                    yield cells if flaw is None else self._bad(flaw, cells)
                    self._record.clear()
                return
            except _Overflow:
                yield self._skip()
            except _Unclosed:
                count = len(self._record)
                rest = f", so the {count - 1} lines after it were not read" if count > 1 else ""
                yield self._bad(f"a quote is opened and never closed{rest}", [self._record[0].rstrip("\r\n")])
                return
            except csv.Error as error:
                yield self._bad(str(error), ["".join(self._record)])

    def _lines(self) -> Iterator[str]:
        """What the reader asks for. If it asks in the middle of a row, the row goes on inside of a quote."""
        size = 0
        while line := self._next_line():
            size = size + len(line) if self._record else len(line)
            self._record.append(line)
            if size > self._limit:
                raise _Overflow
            yield line
        if self._record:
            raise _Unclosed

    def _next_line(self) -> str:
        line = self._ahead.pop() if self._ahead else self._readline()
        if line:
            self._line += 1
        return line

    def _readline(self) -> str:
        try:
            return self._text.readline(self._limit + 1)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self._name} is not {self._encoding} behind line {self._line}: {error.reason}",
                hint="give its encoding, or bring the file whole again",
            ) from error

    def _skip(self) -> Bad:
        """To the end of a row that is too long, without keeping it."""
        first, pieces = self._line - len(self._record) + 1, self._record
        size, quotes = sum(map(len, pieces)), sum(piece.count(QUOTE) for piece in pieces)
        last, begin = pieces[-1], cut(pieces[0].rstrip("\r\n"))
        while (quotes % 2 or not last.endswith(("\n", "\r"))) and (piece := self._readline_ahead()):
            if last.endswith(("\n", "\r")):
                self._line += 1
            size, quotes, last = size + len(piece), quotes + piece.count(QUOTE), piece
        where = "" if self._line == first else f" up to line {self._line}"
        unclosed = ", and a quote in it is never closed" if quotes % 2 else ""
        return Bad(
            first,
            f"the row{where} has {size:,} characters{unclosed}; {self._limit:,} are allowed (largest_row)",
            (begin,),
        )

    def _readline_ahead(self) -> str:
        return self._ahead.pop() if self._ahead else self._readline()

    # ── what is wrong with a row ──

    def _flaw(self) -> str | None:
        for text in self._record:
            if "\0" in text:
                return "holds a NUL character"
            if not text.isascii() and SURROGATE.search(text):
                shown = " ".join(f"{ord(byte) - 0xDC00:02x}" for byte in ESCAPED.findall(text)[:SHOWN_BYTES])
                what = f"byte {shown}" if shown else "half of a character"
                return f"is not {self._encoding}: {what}; if the whole file is not, give its encoding"
        return None

    def _bad(self, reason: str, cells: list[str]) -> Bad:
        line = self._line - len(self._record) + 1
        return Bad(line, reason, tuple(cut(cell) for cell in cells[:MOST_CELLS_KEPT]))

    # ── the file ──

    def position(self) -> int:
        return self._raw.count

    def digest(self) -> str:
        while self._text.buffer.read(BUFFER):
            pass  # what stands behind an unclosed quote belongs to the content, too
        return self._raw.digest()

    def close(self) -> None:
        self._text.close()


class _Overflow(Exception):
    """A row is longer than allowed."""


class _Unclosed(Exception):
    """The file ends inside of a quote."""


def _limit(largest_row: int | None) -> int:
    """Characters of a row. What the standard library refuses as a cell by itself is the default."""
    if largest_row is None:
        return csv.field_size_limit()
    if largest_row > csv.field_size_limit():
        csv.field_size_limit(largest_row)  # of the process: there is no other way to have long cells read
    return largest_row
