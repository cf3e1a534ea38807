"""A file that hashes what is read from it, to check that the imported content is the claimed content."""

from __future__ import annotations

import hashlib
import io
import stat
from pathlib import Path

from onceward.errors import SourceError

BUFFER = 1 << 18  # bytes per read: few calls, and little memory compared with the rows


class HashedFile(io.RawIOBase):
    """Raw bytes that are counted and hashed while they are read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file = open_regular_file(path)
        self._hash = hashlib.sha256()
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview | bytearray) -> int:  # type: ignore[override]  # the type stubs allow any buffer
        try:
            got = self._file.readinto(into)
        except OSError as error:
            raise SourceError(f"{self._path} cannot be read after byte {self.count:,}: {error.strerror}") from error
        if got:
            self._hash.update(memoryview(into)[:got])
            self.count += got
        return got or 0

    def digest(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()


def open_regular_file(path: Path) -> io.FileIO:
    """Open the file. Raise if it is not a regular file: it is read twice, and a pipe would block forever."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return path.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise SourceError(f"{path} does not exist", hint="check the path") from error
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise SourceError(f"{path} is a folder", hint="name a file")
    raise SourceError(f"{path} is not a regular file", hint="write the content of the pipe to a file, and import that")
