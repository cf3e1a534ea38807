"""The reject file: each row that did not go in, with its line and the reason; safe to open in a spreadsheet.

A cell that a spreadsheet would run as a formula begins with an apostrophe there. It is taken off again when the file,
mended, is imported: a phone number keeps its plus.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from onceward.errors import SourceError

COLUMNS: Final = ("rejected_line", "rejected_reason")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What spreadsheets take as the begin of a formula; the full-width ones are the same to some of them."""
GUARD: Final = "'"
ELSEWHERE: Final = "name another place for them (rejects=, or --rejects); nothing of this batch was taken in"


def guarded(cell: str) -> str:
    """Text to a spreadsheet, whatever it begins with. A blank or a guard in front would not help: it counts too."""
    bare = cell.lstrip(f"{GUARD} ")
    return f"{GUARD}{cell}" if bare.startswith(FORMULA) else cell


def unguarded(cells: Sequence[str]) -> list[str]:
    """As they were before `guarded`."""
    return [cell[1:] if cell.startswith(GUARD) and guarded(cell[1:]) == cell else cell for cell in cells]


class Rejects:
    """The file while it grows, always from its last committed length on."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self._columns = tuple(columns)
        self._file: io.TextIOWrapper | None = None

    def add(self, rejects: Iterable[tuple[int, str, Sequence[str]]], committed: int) -> int:
        """Write them behind what is committed, through to the disk; the size to be committed now.

        What the database says about this file must be true of it.
        """
        rejects = list(rejects)
        if not rejects:
            return committed
        try:
            file = self._opened(self._path, committed)
            csv.writer(file).writerows([line, guarded(reason), *map(guarded, cells)] for line, reason, cells in rejects)
            file.flush()
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)
        except OSError as error:
            raise SourceError(
                f"rejected rows cannot be written to {self._path}: {error.strerror}",
                hint="make room there: the rows before this batch are in it" if committed else ELSEWHERE,
            ) from error

    def _opened(self, path: Path, committed: int) -> io.TextIOWrapper:
        """Cut to what is committed: a crash, or an attempt that was rolled back, may have left more."""
        if self._file is None:
            if not committed:
                _must_be_ours(path)
            self._file = path.open("r+" if committed else "w", encoding="utf-8", errors="surrogateescape", newline="")
        self._file.seek(0)
        self._file.truncate(committed)
        self._file.seek(0, os.SEEK_END)
        if not committed:
            csv.writer(self._file).writerow([*COLUMNS, *map(guarded, self._columns)])
        return self._file

    def check(self, committed: int) -> None:
        """That what was rejected before the crash is still there."""
        path = self._path
        if committed and (not path.exists() or path.stat().st_size < committed):
            raise SourceError(
                f"{path} held {committed:,} bytes of rejected rows, and does not any more",
                hint="bring it back, or restart: rows that are unchanged are skipped",
            )

    def finish(self, committed: int) -> None:
        """The import is done, and nothing else is left in the file."""
        self.close()
        if committed:
            os.truncate(self._path, committed)

    def close(self) -> None:
        """What stands behind the committed length is cut off by the next one: perhaps it was committed after all."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # of a full disk: whatever is still to be written has failed before
                file.close()


def _must_be_ours(path: Path) -> None:
    """A reject file may be written anew, by the same import as a rule; anything else is somebody's."""
    begin = ",".join(COLUMNS).encode()
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(begin)) != begin:
                raise SourceError(
                    f"rejected rows cannot be written to {path}: it is there already, and is no reject file",
                    hint=ELSEWHERE,
                )
