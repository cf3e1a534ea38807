"""Content keys: the hash of what a file holds, whatever it is called. Reads in pieces, never a whole file."""

from __future__ import annotations

import hashlib
import io
import os
from typing import BinaryIO, Final

from onceward.errors import InvalidKey

_PIECE: Final = 1 << 20


def content_key(source: bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO) -> str:
    """`sha256:<hex>` of bytes, of the file at a path, or of a binary stream from where it stands.

    A stream that can seek is put back where it was, so that the work can read it afterwards. One that cannot is read
    to its end, and nothing is left of it: see `is_spent_by_hashing`.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return f"sha256:{hashlib.sha256(source).hexdigest()}"
    if isinstance(source, str):
        raise InvalidKey(
            "a str may be a path or the content itself", hint="pass Path(name) for a file, text.encode() for content"
        )
    if isinstance(source, os.PathLike):
        with open(source, "rb", buffering=0) as file:  # noqa: PTH123 - any path-like, not only pathlib's
            return f"sha256:{_digest(file)}"
    stream: object = source
    if isinstance(stream, io.TextIOBase) or not hasattr(stream, "read"):
        raise InvalidKey(
            f"{type(source).__name__} has no bytes to hash",
            hint="pass bytes, a Path, or a stream opened in binary mode",
        )
    return _stream_key(source)


def is_spent_by_hashing(source: object) -> bool:
    """Whether it is a stream that cannot be put back to where it was."""
    return hasattr(source, "read") and not isinstance(source, os.PathLike) and not _is_seekable(source)


def _is_seekable(stream: object) -> bool:
    return bool(getattr(stream, "seekable", bool)())


def _stream_key(stream: BinaryIO) -> str:
    seekable = _is_seekable(stream)
    start = stream.tell() if seekable else 0
    try:
        return f"sha256:{_digest(stream)}"
    finally:
        if seekable:
            stream.seek(start)


def _digest(stream: BinaryIO | io.RawIOBase) -> str:
    """Not `hashlib.file_digest`, which hashes an in-memory stream from its start and needs `readinto`."""
    own = hashlib.sha256()
    while piece := stream.read(_PIECE):
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise InvalidKey(f"a stream of {type(piece).__name__}, not bytes", hint="open it in binary mode")
        own.update(piece)
    return own.hexdigest()
