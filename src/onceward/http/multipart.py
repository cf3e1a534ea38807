"""Compare multipart bodies by their parts: a client that repeats a request chooses a new boundary each time.

The body is split at its delimiters, and each part is hashed as it is: headers and content. So two bodies are equal if
they have the same parts in the same order, whatever their boundaries are.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

MAX_BOUNDARY: Final = 70
"""The longest boundary that RFC 2046 allows."""

_BOUNDARY: Final = re.compile(rb';\s*boundary=(?:"([^"]*)"|([^\s;"]+))', re.IGNORECASE)


def split_boundary(content_type: bytes) -> tuple[bytes, bytes]:
    """Return the content type without its boundary, and the boundary; empty if the body is not multipart."""
    if content_type[:10].lower() != b"multipart/":
        return content_type, b""
    found = _BOUNDARY.findall(content_type)
    boundary = b"".join(found[0]) if len(found) == 1 else b""
    if not 0 < len(boundary) <= MAX_BOUNDARY:
        return content_type, b""
    return _BOUNDARY.sub(b"", content_type), boundary


class MultipartHash:
    """Hashes a body by its parts. Used like an object of `hashlib`."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._unhashed = b"\r\n"  # the first delimiter may be at the start of the body, without a line break
        self._part = hashlib.sha256()
        self._parts = hashlib.sha256(b"onceward/multipart/1\0")

    def update(self, chunk: bytes) -> None:
        *ended, rest = (self._unhashed + chunk).split(self._delimiter)
        for part in ended:
            self._part.update(part)
            self._end_part()
        cut = max(len(rest) - len(self._delimiter) + 1, 0)  # what follows may be the start of a delimiter
        self._part.update(rest[:cut])
        self._unhashed = rest[cut:]

    def digest(self) -> bytes:
        """Return the digest. Nothing may be added afterwards."""
        self._part.update(self._unhashed)
        self._end_part()
        return self._parts.digest()

    def _end_part(self) -> None:
        self._parts.update(self._part.digest())
        self._part = hashlib.sha256()
