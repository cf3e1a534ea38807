"""Read and hash a source piece by piece: bytes, a file, a stream or an iterable. Never all of it in memory."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

from onceward.errors import InvalidKey

from .backend import PIECE

Source = bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO | Iterable[bytes]


class HashingReader(Iterator[bytes]):
    """Iterates over the pieces of a source. At the end, `content` is their hash and `size` their length."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._hash = hashlib.sha256()
        self.size = 0

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        self._hash.update(piece)
        self.size += len(piece)
        return piece

    @property
    def content(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def pieces_of(source: Source) -> Iterator[bytes]:
    """Return the pieces of a source. A stream is read from its current position."""
    if isinstance(source, bytes | bytearray | memoryview):
        return _pieces_of_view(memoryview(source).cast("B"))
    if isinstance(source, str):
        raise InvalidKey(
            "a str may be a path or the content itself", hint="pass Path(name) for a file, text.encode() for content"
        )
    if isinstance(source, os.PathLike):
        return _pieces_of_file(source)
    if hasattr(source, "read"):
        return _pieces_of_stream(cast("BinaryIO", source))
    if isinstance(source, Iterable):
        return _checked(iter(source))
    raise InvalidKey(
        f"{type(source).__name__} has no bytes to put", hint="pass bytes, a Path, a binary stream or pieces of bytes"
    )


def _pieces_of_view(view: memoryview) -> Iterator[bytes]:
    for start in range(0, len(view), PIECE):
        yield bytes(view[start : start + PIECE])


def _pieces_of_file(path: os.PathLike[str]) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - any path-like, not only pathlib's
        while piece := file.read(PIECE):
            yield piece


def _pieces_of_stream(stream: BinaryIO) -> Iterator[bytes]:
    candidate: object = stream
    if isinstance(candidate, io.TextIOBase):
        raise InvalidKey("a text stream has no bytes", hint="open it in binary mode")
    return _checked(iter(lambda: stream.read(PIECE), b""))


def _checked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise InvalidKey(f"a piece is {type(piece).__name__}, not bytes", hint="open a stream in binary mode")
        yield bytes(piece)
