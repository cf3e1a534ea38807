"""The reject file: each rejected row, with its line and the reason. It is safe to open in a spreadsheet.

What a spreadsheet would run as a formula gets an apostrophe in front, also after a semicolon or a tab inside a cell: in
some locales these separate cells. It is removed again when the corrected file is imported, so that a phone number keeps
its plus. The file is readable by its owner only, and a symbolic link in its place is refused.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from onceward.errors import SourceError

COLUMNS: Final = ("rejected_line", "rejected_reason")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The characters that begin a formula. Some spreadsheets treat the full-width ones the same."""
ESCAPE: Final = "'"
OTHER_PATH_HINT: Final = "choose another path (rejects=, or --rejects); no row of this batch was imported"


_START: Final = "(^|[;,|\t\r\n])"
_BEFORE_FORMULA: Final = f"(?=['\" ]*[{re.escape(''.join(FORMULA))}])"
_FORMULAS: Final = re.compile(_START + _BEFORE_FORMULA)
_ESCAPED: Final = re.compile(_START + ESCAPE + _BEFORE_FORMULA)
_NO_TEXT: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Halves of characters that no encoding can write. The others stand for bytes, which are written as they were."""


def escape_formula(cell: str) -> str:
    """Escape what a spreadsheet would run as a formula, also if it begins with spaces, quotes or apostrophes."""
    return _FORMULAS.sub(rf"\1{ESCAPE}", _NO_TEXT.sub("\ufffd", cell))


def unescape_formulas(cells: Sequence[str]) -> list[str]:
    """Remove the escapes that `escape_formula` added."""
    return [_ESCAPED.sub(r"\1", cell) for cell in cells]


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
                [line, escape_formula(reason), *map(escape_formula, cells)] for line, reason, cells in rejects
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
            mode = "r+" if committed else "w"
            file = open(  # noqa: SIM115 (kept open; a Path has no opener)
                path, mode, encoding="utf-8", errors="surrogateescape", newline="", opener=_open_file
            )
            assert isinstance(file, io.TextIOWrapper)  # noqa: S101 (a text mode)
            self._file = file
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
            with open(self._path, "r+b", opener=_open_file) as file:
                file.truncate(committed)

    def close(self) -> None:
        """Close the file without truncating it: the last batch may have been committed. The next run truncates it."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # for example a full disk: the write has already raised
                file.close()


def _open_file(path: str, flags: int) -> int:
    """Open the file itself, and not what a symbolic link leads to. Only its owner may read it."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _refuse_other_file(path: Path) -> None:
    """Raise if the file exists and is not a reject file. A reject file may be overwritten: usually it is our own."""
    begin = ",".join(COLUMNS).encode()
    if path.is_symlink():
        raise SourceError(f"rejected rows cannot be written to {path}: it is a symbolic link", hint=OTHER_PATH_HINT)
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(begin)) != begin:
                raise SourceError(
                    f"rejected rows cannot be written to {path}: it exists, and is not a reject file",
                    hint=OTHER_PATH_HINT,
                )
