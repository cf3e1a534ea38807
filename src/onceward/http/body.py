"""Buffer and hash the body of a request: a small one in memory, a large one in a temporary file.

On an event loop, call `flush` and `end` in a worker thread if `needs_thread` is true, and `read` if `on_disk` is.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from typing import IO, Final

from .multipart import MultipartHash

MAX_IN_MEMORY: Final = 1 << 20
"""Largest body that stays in memory, in bytes. A larger one is written to a temporary file."""

CHUNK_SIZE: Final = 1 << 18
"""Bytes that are hashed and written, or read back, in one step."""

MAX_INLINE_HASH: Final = 1 << 16
"""Bytes that take less time to hash than to hand over to a thread."""


class BodyTooLarge(Exception):
    """The body is larger than the limit."""


class Body:
    """Add chunks, then get the digest and read the same bytes back. A multipart body has a `boundary`."""

    __slots__ = ("_closed", "_file", "_hash", "_hashed", "_limit", "_unhashed", "_unhashed_size", "size")

    def __init__(self, limit: int, boundary: bytes = b"") -> None:
        self._limit = limit
        self.size = 0
        self._unhashed: list[bytes] = []
        self._unhashed_size = 0
        self._hashed: list[bytes] = []  # in memory
        self._hash = MultipartHash(boundary) if boundary else hashlib.sha256()
        self._file: IO[bytes] | None = None
        self._closed = False

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > self._limit:
            raise BodyTooLarge
        self._unhashed_size += len(chunk)
        self._unhashed.append(chunk)

    @property
    def should_flush(self) -> bool:
        """Whether enough unhashed bytes have accumulated to call `flush`."""
        return self._unhashed_size >= CHUNK_SIZE

    @property
    def needs_thread(self) -> bool:
        return self._unhashed_size > MAX_INLINE_HASH or self.size > MAX_IN_MEMORY

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    def flush(self) -> None:
        """Hash the new chunks, and write them to the file if the body is too large for memory."""
        chunk = b"".join(self._unhashed)  # one call for all: chunks may be as small as a byte
        self._hash.update(chunk)
        self._hashed.append(chunk)
        self._unhashed, self._unhashed_size = [], 0
        if self.size > MAX_IN_MEMORY:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="onceward-body-")  # noqa: SIM115 (closed by `close`)
            self._file.writelines(self._hashed)
            self._hashed = []
            if self._closed:  # closed meanwhile, by another thread
                self._file.close()

    def end(self) -> bytes:
        """Finish the body, and return its hash. It can be read from now on."""
        self.flush()
        if self._file is None:
            self._hashed.reverse()  # so that `read` can pop
        else:
            self._file.seek(0)
        return self._hash.digest()

    def read(self) -> bytes:
        """Return the next chunk; empty at the end."""
        if self._file is not None:
            return self._file.read(CHUNK_SIZE)
        return self._hashed.pop() if self._hashed else b""

    def stream(self) -> IO[bytes]:
        """Return the whole body as a file object."""
        return self._file if self._file is not None else io.BytesIO(b"".join(reversed(self._hashed)))

    def close(self) -> None:
        self._closed = True
        self._hashed = []
        if self._file is not None:
            self._file.close()
