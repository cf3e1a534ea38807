"""A request's body: hashed while it is read, in memory while it is small and in a file beyond, handed on as it was.

Whoever is on an event loop calls `flush` and `read` in a worker thread when `heavy` says so.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from typing import IO, Final

IN_MEMORY: Final = 1 << 20
"""Bytes of one body. What is larger goes to a temporary file."""

PIECE: Final = 1 << 18
"""Bytes that are hashed and written, or read back, at a time."""

LIGHT: Final = 1 << 16
"""Bytes that are hashed in less time than it takes to hand them to a thread."""

MOST_DIGITS: Final = 18
"""Of a length that is announced: what has more is no number of bytes."""


class BodyTooLarge(Exception):
    """More than the limit."""


class Body:
    """Chunks in, one digest and the same bytes out."""

    __slots__ = ("_file", "_fresh", "_hash", "_kept", "_limit", "_over", "_waiting", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.size = 0
        self._fresh: list[bytes] = []  # not hashed yet
        self._waiting = 0  # their bytes
        self._kept: list[bytes] = []  # hashed, and in memory
        self._hash = hashlib.sha256()
        self._file: IO[bytes] | None = None
        self._over = False

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > self._limit:
            raise BodyTooLarge
        self._waiting += len(chunk)
        self._fresh.append(chunk)

    @property
    def full(self) -> bool:
        """Whether it is time to flush: so much may lie around."""
        return self._waiting >= PIECE

    @property
    def heavy(self) -> bool:
        return self._waiting > LIGHT or self.size > IN_MEMORY

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    def flush(self) -> None:
        """Hash what came since the last time; write it away if the whole does not stay in memory."""
        piece = b"".join(self._fresh)  # a part may be as small as a byte, and each of them has its price
        self._hash.update(piece)
        self._kept.append(piece)
        self._fresh, self._waiting = [], 0
        if self.size > IN_MEMORY:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="onceward-body-")  # noqa: SIM115 (closed by `close`)
            self._file.writelines(self._kept)
            self._kept = []
            if self._over:  # given up meanwhile, by another thread
                self._file.close()

    def end(self) -> bytes:
        """The SHA-256 of the whole, which can be read from now on."""
        self.flush()
        if self._file is None:
            self._kept.reverse()  # so that the next one is the last
        else:
            self._file.seek(0)
        return self._hash.digest()

    def read(self) -> bytes:
        """The next piece; empty at the end."""
        if self._file is not None:
            return self._file.read(PIECE)
        return self._kept.pop() if self._kept else b""

    def stream(self) -> IO[bytes]:
        """The whole as a file, from its beginning."""
        return self._file if self._file is not None else io.BytesIO(b"".join(reversed(self._kept)))

    def close(self) -> None:
        self._over = True
        self._kept = []
        if self._file is not None:
            self._file.close()
