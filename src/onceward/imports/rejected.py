"""The reject file: each row that did not go in, with its line and the reason; safe to open in a spreadsheet.

A cell that a spreadsheet would run as a formula begins with an apostrophe there. It is taken off again when the file,
mended, is imported: a phone number keeps its plus.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from onceward.errors import SourceError

COLUMNS: Final = ("rejected_line", "rejected_reason")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What spreadsheets take as the begin of a formula; the full-width ones are the same to some of them."""
GUARD: Final = "'"


def guarded(cell: str) -> str:
    """Text to a spreadsheet, whatever it begins with. A blank or a guard in front would not help: it counts too."""
    bare = cell.lstrip(f"{GUARD} ")
    return f"{GUARD}{cell}" if bare.startswith(FORMULA) else cell


def unguarded(cells: Sequence[str]) -> list[str]:
    """As they were before `guarded`."""
    return [cell[1:] if cell.startswith(GUARD) and guarded(cell[1:]) == cell else cell for cell in cells]


class Rejects:
    """The file while it grows. What a crash left behind its last committed length is cut off first."""

    def __init__(self, path: Path, columns: Sequence[str], committed: int = 0) -> None:
        self.path = path
        self._committed = committed
        self._columns = tuple(columns)
        self._file: io.TextIOWrapper | None = None
        self.size = committed

    def add(self, rejects: Iterable[tuple[int, str, Sequence[str]]]) -> None:
        """Write them through to the disk: what the database says about this file must be true of it."""
        file: io.TextIOWrapper | None = None
        for line, reason, cells in rejects:
            file = file or self._opened()
            csv.writer(file).writerow([line, guarded(reason), *map(guarded, cells)])
        if file is not None:
            file.flush()
            os.fsync(file.fileno())
            self.size = os.fstat(file.fileno()).st_size

    def _opened(self) -> io.TextIOWrapper:
        if self._file is None:
            self._file = self._begun() if self._committed == 0 else self._continued()
        return self._file

    def _begun(self) -> io.TextIOWrapper:
        file = self.path.open("w", encoding="utf-8", errors="surrogateescape", newline="")
        csv.writer(file).writerow([*COLUMNS, *map(guarded, self._columns)])
        return file

    def _continued(self) -> io.TextIOWrapper:
        self.check()
        file = self.path.open("r+", encoding="utf-8", errors="surrogateescape", newline="")
        file.truncate(self._committed)
        file.seek(0, os.SEEK_END)
        return file

    def check(self) -> None:
        """That what was rejected before the crash is still there."""
        if self._committed and (not self.path.exists() or self.path.stat().st_size < self._committed):
            raise SourceError(
                f"{self.path} held {self._committed:,} bytes of rejected rows, and does not any more",
                hint="bring it back, or import anew with restart: unchanged rows are skipped",
            )

    def close(self) -> None:
        """Cut off what was not committed, also if nothing more was added."""
        if self._file is None and self._committed and self.path.exists():
            os.truncate(self.path, self._committed)
        if self._file is not None:
            self._file.close()
            self._file = None
