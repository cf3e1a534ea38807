"""A file that hashes what is read from it: what was claimed by its content must be what is imported."""

from __future__ import annotations

import hashlib
import io
import stat
from pathlib import Path

from onceward.errors import SourceError

BUFFER = 1 << 18  # bytes a read: few calls, and still nothing beside the rows in memory


class HashedFile(io.RawIOBase):
    """Raw bytes, counted and hashed on their way."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file = opened(path)
        self._hash = hashlib.sha256()
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview | bytearray) -> int:  # type: ignore[override]  # the stubs know no narrower buffer
        try:
            got = self._file.readinto(into)
        except OSError as error:
            raise SourceError(f"{self._path} cannot be read behind byte {self.count:,}: {error.strerror}") from error
        if got:
            self._hash.update(memoryview(into)[:got])
            self.count += got
        return got or 0

    def digest(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()


def opened(path: Path) -> io.FileIO:
    """The file, or a message that says what is there instead. It is read twice: a pipe would be waited for forever."""
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
    raise SourceError(f"{path} is no file", hint="write what comes through a pipe into a file, and import that")
