"""Content keys: the hash of a file's content, whatever its name. Files are read in chunks, never as a whole."""

from __future__ import annotations

import hashlib
import io
import os
from typing import BinaryIO, Final

from onceward.errors import InvalidKey

_CHUNK_BYTES: Final = 1 << 20


def content_key(source: bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO) -> str:
    """Return `sha256:<hex>` of the `source`: bytes, the file at a path, or a binary stream from its current position.

    A seekable stream is reset to its position, so that the work can read it afterwards. Any other stream is consumed:
    see `is_consumed_by_hashing`.

    Raises:
        InvalidKey: The source is a `str`, which may be a path or the content itself, or has no bytes to read.
        OSError: The file cannot be read.
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


def is_consumed_by_hashing(source: object) -> bool:
    """Return whether the source is a stream that cannot be reset to its position."""
    return hasattr(source, "read") and not isinstance(source, os.PathLike) and not _is_seekable(source)


def _is_seekable(stream: object) -> bool:
    return bool(getattr(stream, "seekable", bool)())


def _stream_key(stream: BinaryIO) -> str:
    seekable = _is_seekable(stream)
    start = stream.tell() if seekable else 0  # plain: ok (file position)
    try:
        return f"sha256:{_digest(stream)}"
    finally:
        if seekable:
            stream.seek(start)


def _digest(stream: BinaryIO | io.RawIOBase) -> str:
    """Hash the stream. `hashlib.file_digest` would hash an in-memory stream from its start, and needs `readinto`."""
    hasher = hashlib.sha256()
    while chunk := stream.read(_CHUNK_BYTES):
        if not isinstance(chunk, bytes | bytearray | memoryview):
            raise InvalidKey(f"a stream of {type(chunk).__name__}, not bytes", hint="open it in binary mode")
        hasher.update(chunk)
    return hasher.hexdigest()
