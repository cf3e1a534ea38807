"""The reject file: each rejected row, with its line and the reason. It is safe to open in a spreadsheet.

A cell that a spreadsheet would run as a formula gets an apostrophe in front. A spreadsheet may split cells at
separators other than the comma, for example at semicolons where the comma is the decimal sign. So each part of a
cell gets one. The import of the corrected file removes them again, so that a phone number keeps its plus sign.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from onceward.errors import SourceError

COLUMNS: Final = ("rejected_line", "rejected_reason")
ESCAPE: Final = "'"
_PART: Final = r"(?:\A|(?<=[;|\t\r\n]))"
"""Where a part of a cell begins, whichever separator the spreadsheet uses."""
_FORMULA: Final = r"(?=['\" ]*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])"
"""Characters that start a formula, even after spaces and quotes. Some spreadsheets also accept full-width ones."""
_escape = re.compile(f"{_PART}{_FORMULA}").sub
_unescape = re.compile(f"{_PART}{ESCAPE}{_FORMULA}").sub
_unencodable = re.compile("[\ud800-\udc7f\udd00-\udfff]").sub
"""Lone surrogates, except for those that represent invalid bytes of the source."""
OTHER_PATH_HINT: Final = "choose another path (rejects=, or --rejects); no row of this batch was imported"


def escape_formula(cell: str) -> str:
    """Escape each part of a cell that a spreadsheet would run as a formula."""
    return _escape(ESCAPE, cell)


def unescape_formulas(cells: Sequence[str]) -> list[str]:
    """Remove the escapes that `escape_formula` added."""
    return [_unescape("", cell) for cell in cells]


class RejectFile:
    """A reject file. Rows are always written after its last committed length."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self._columns = tuple(columns)
        self._file: io.TextIOWrapper | None = None

    def add(self, rejects: Iterable[tuple[int, str, Sequence[str]]], committed: int) -> int:
        """Write rows after the committed length and sync them to disk. Return the size to be committed now.

        The file must be on disk before the database commits its size.
        """
        rejects = list(rejects)
        if not rejects:
            return committed
        try:
            file = self._open_at(self._path, committed)
            csv.writer(file).writerows(
                [line, *(_unencodable("\ufffd", escape_formula(cell)) for cell in (reason, *cells))]
                for line, reason, cells in rejects
            )
            file.flush()
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)
        except OSError as error:
            raise SourceError(
                f"rejected rows cannot be written to {self._path}: {error.strerror}",
                hint="free disk space: the file already holds earlier rows" if committed else OTHER_PATH_HINT,
            ) from error

    def _open_at(self, path: Path, committed: int) -> io.TextIOWrapper:
        """Open the file, and truncate it to the committed length: a crash or a rollback may have left more."""
        if self._file is None:
            if not committed:
                _refuse_other_file(path)
            file = os.fdopen(_open_without_links(path), "r+b")
            self._file = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
        self._file.seek(0)
        self._file.truncate(committed)
        self._file.seek(0, os.SEEK_END)
        if not committed:
            csv.writer(self._file).writerow([*COLUMNS, *map(escape_formula, self._columns)])
        return self._file

    def check(self, committed: int) -> None:
        """Raise if the rows that were rejected before an interruption are missing."""
        path = self._path
        if committed and (not path.exists() or path.stat().st_size < committed):
            raise SourceError(
                f"{path} should hold {committed:,} bytes of rejected rows, but is missing or shorter",
                hint="restore it, or restart: unchanged rows are skipped",
            )

    def finish(self, committed: int) -> None:
        """Close the file after the import is complete, and truncate it to the committed length."""
        self.close()
        if committed:
            descriptor = _open_without_links(self._path)
            try:
                os.truncate(descriptor, committed)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Close the file without truncating it: the last batch may have been committed. The next run truncates it."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # for example a full disk: the write has already raised
                file.close()


def _open_without_links(path: Path) -> int:
    """Open or create the file. A symbolic link could lead to a file that someone else chose."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP or path.is_symlink():
            raise _no_reject_file(path, "it is a symbolic link") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_reject_file(path, "it is not a regular file")
    return descriptor


def _no_reject_file(path: Path, why: str) -> SourceError:
    return SourceError(f"rejected rows cannot be written to {path}: {why}", hint=OTHER_PATH_HINT)


def _refuse_other_file(path: Path) -> None:
    """Raise if the file exists and is not a reject file. A reject file may be overwritten: usually it is our own."""
    begin = ",".join(COLUMNS).encode()
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(begin)) != begin:
                raise _no_reject_file(path, "it exists, and is not a reject file")
