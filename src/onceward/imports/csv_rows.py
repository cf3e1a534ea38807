"""Read the rows of a CSV file in bounded memory. Each invalid row is reported with its line.

The standard library's reader decides what a row is. It gets one line at a time, so this module knows where each row
begins. A row that exceeds the limit is skipped up to its end. The end is after the closing quote, not at the next line:
the content of a quoted cell must never be read as rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onceward.errors import SourceError

from .dialect import SAMPLE, checked_delimiter, declared_delimiter, detect_delimiter
from .hashed_file import BUFFER, HashedFile
from .reject_file import COLUMNS as REJECTED
from .reject_file import unescape_formulas
from .rows import MAX_REJECT_CELLS, AnyRow, BadRow, SourceRow, checked_header, truncate
from .scan import ESCAPED, SURROGATE, FileScan

QUOTE: Final = '"'
MAX_SHOWN_BYTES: Final = 3


class CsvRows:
    """A CSV file with a header."""

    def __init__(
        self, path: Path, scan: FileScan, *, delimiter: str | None = None, largest_row: int | None = None
    ) -> None:
        self._limit = _limit(largest_row)
        self._raw = HashedFile(path)
        self._is_wide = scan.encoding.startswith(("utf-16", "utf-32"))
        errors = "surrogatepass" if self._is_wide else "surrogateescape"
        buffered = io.BufferedReader(self._raw, BUFFER)
        self._text = io.TextIOWrapper(buffered, scan.encoding, errors, newline="")
        self._encoding = scan.encoding
        self._name = path.name
        self._line = 0  # of the file, counted from 1
        self._record: list[str] = []  # the lines of the current row
        self._ahead: list[str] = []  # lines that were sampled, but not parsed yet
        try:
            self._read_header(None if delimiter is None else checked_delimiter(delimiter))
        except BaseException:
            self.close()
            raise

    # ── the header ──

    def _read_header(self, delimiter: str | None) -> None:
        first = self._readline()
        if not first:
            raise SourceError(f"{self._name} is empty", hint="the first line must name the columns")
        declared = declared_delimiter(first)
        self._line = 1 if declared else 0
        sample = [] if declared else [first]
        size = 0
        while size < SAMPLE and (line := self._readline()):
            sample.append(line)
            size += len(line)
        self._ahead = sample[::-1]
        self.delimiter = delimiter or declared or detect_delimiter("".join(sample)[:SAMPLE])
        header = next((read for read in self._rows() if read), None)
        if header is None:
            raise SourceError(f"{self._name} has no header", hint="the first line must name the columns")
        if isinstance(header, BadRow):
            raise SourceError(f"the header of {self._name} cannot be read: {header.reason}")
        columns = checked_header(header, self._name)
        self._is_reject_file = (
            columns[: len(REJECTED)] == REJECTED
        )  # its additional columns and escapes are removed again
        self.columns = tuple(unescape_formulas(columns[len(REJECTED) :])) if self._is_reject_file else columns

    # ── rows ──

    def __iter__(self) -> Iterator[AnyRow]:
        columns, width = self.columns, len(self.columns)
        for cells in self._cells():
            if isinstance(cells, BadRow):
                yield cells
            elif len(cells) == width or (len(cells) > width and not any(cells[width:])):
                line = self._line - len(self._record) + 1
                yield SourceRow(line, {name: cell for name, cell in zip(columns, cells, strict=False) if cell})
            elif cells:
                yield self._bad(f"has {len(cells)} cells where the header has {width}", cells)

    def _cells(self) -> Iterator[list[str] | BadRow]:
        if not self._is_reject_file:
            return self._rows()
        added = len(REJECTED)
        return (cells if isinstance(cells, BadRow) else unescape_formulas(cells[added:]) for cells in self._rows())

    def _rows(self) -> Iterator[list[str] | BadRow]:
        """Yield the cells of each row, or why it is invalid. `_record` holds the lines of the row."""
        while True:
            self._record.clear()
            reader = csv.reader(self._lines(), delimiter=self.delimiter)
            try:
                for cells in reader:
                    problem = self._problem()
                    yield cells if problem is None else self._bad(problem, cells)
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
        """Yield lines to the reader. If it asks for another line before a row ends, the row is inside a quoted cell."""
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
                f"{self._name} is not {self._encoding} after line {self._line}: {error.reason}",
                hint="pass its encoding, or check whether the file is complete",
            ) from error

    def _skip(self) -> BadRow:
        """Skip to the end of a row that is too long, without keeping it in memory."""
        first, pieces = self._line - len(self._record) + 1, self._record
        size, quotes = sum(map(len, pieces)), sum(piece.count(QUOTE) for piece in pieces)
        last, begin = pieces[-1], self._shown(pieces[0].rstrip("\r\n"))
        while (quotes % 2 or not last.endswith(("\n", "\r"))) and (piece := self._readline_ahead()):
            if last.endswith(("\n", "\r")):
                self._line += 1
            size, quotes, last = size + len(piece), quotes + piece.count(QUOTE), piece
        where = "" if self._line == first else f" up to line {self._line}"
        unclosed = ", and a quote in it is never closed" if quotes % 2 else ""
        return BadRow(
            first,
            f"the row{where} has {size:,} characters{unclosed}; {self._limit:,} are allowed (largest_row)",
            (begin,),
        )

    def _readline_ahead(self) -> str:
        return self._ahead.pop() if self._ahead else self._readline()

    # ── invalid rows ──

    def _problem(self) -> str | None:
        for text in self._record:
            if "\0" in text:
                return "holds a NUL character"
            if not text.isascii() and SURROGATE.search(text):
                escaped = [] if self._is_wide else ESCAPED.findall(text)[:MAX_SHOWN_BYTES]
                shown = " ".join(f"{ord(byte) - 0xDC00:02x}" for byte in escaped)
                what = f"byte {shown}" if shown else "half of a character"
                return f"is not {self._encoding}: {what}; if this is true of the whole file, pass its encoding"
        return None

    def _bad(self, reason: str, cells: list[str]) -> BadRow:
        line = self._line - len(self._record) + 1
        return BadRow(line, reason, tuple(self._shown(cell) for cell in cells[:MAX_REJECT_CELLS]))

    def _shown(self, cell: str) -> str:
        """Return the form of a cell for the reject file. Lone surrogates cannot be encoded as UTF-8."""
        return truncate(SURROGATE.sub("\ufffd", cell) if self._is_wide else cell)

    # ── the file ──

    def position(self) -> int:
        return self._raw.count

    def digest(self) -> str:
        while self._text.buffer.read(BUFFER):
            pass  # the text after an unclosed quote is part of the content, too
        return self._raw.digest()

    def close(self) -> None:
        self._text.close()


class _Overflow(Exception):
    """A row is longer than allowed."""


class _Unclosed(Exception):
    """The file ends inside a quoted cell."""


def _limit(largest_row: int | None) -> int:
    """Return the maximum length of a row in characters. The default is the standard library's limit for a cell."""
    if largest_row is None:
        return csv.field_size_limit()
    if largest_row > csv.field_size_limit():
        csv.field_size_limit(
            largest_row
        )  # for the whole process: the csv module has no other way to allow longer cells
    return largest_row
