"""The first look at a file: its content hash, and the encoding of its text. One pass, in pieces."""

from __future__ import annotations

import codecs
import hashlib
import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from onceward.errors import SourceError

from .hashed_file import opened

PIECE: Final = 1 << 20

BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is the begin of this one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LEGACY: Final = "cp1252"
"""What spreadsheets on Western Windows write. A guess, and told as one."""

PACKED: Final = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ")
"""How gzip, zip (and so .xlsx), zstd and xz begin: no text does."""

LOOKED_AT: Final = 4096  # bytes in which UTF-16 without a mark shows: every second one is NUL
MANY: Final = 0.3

ESCAPED = re.compile("[\udc80-\udcff]")
"""Bytes that are not of the encoding, as `surrogateescape` lets them through."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""These, and halves of characters: no text that a database takes."""


class Scan(Struct, frozen=True):
    """What a file is, whatever it is called."""

    sha256: str
    size: int
    encoding: str
    guessed: bool = False
    """Nothing in the file proves it."""


def scan(path: Path, encoding: str | None = None) -> Scan:
    """Hash the file, and find its encoding unless it is given."""
    if encoding is not None:
        encoding = known(encoding)
    own, size, head = hashlib.sha256(), 0, b""
    counts = Utf8Counts()
    with opened(path) as file:
        while piece := file.read(PIECE):
            own.update(piece)
            size += len(piece)
            head = head or piece[:LOOKED_AT]
            if head.startswith(PACKED):
                raise SourceError(f"{path.name} is packed", hint="unpack it first; a spreadsheet is to be saved as CSV")
            if encoding is None:
                counts.add(piece)
    if encoding is not None:
        return Scan(own.hexdigest(), size, encoding)
    found, guessed = _encoding(head, counts)
    return Scan(own.hexdigest(), size, found, guessed)


def known(encoding: str) -> str:
    """The encoding by its usual name; UTF-8 with or without a mark is one choice."""
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # refuses codecs that are not of text, such as zlib
    except LookupError as error:
        raise SourceError(
            f"there is no text encoding {encoding!r}", hint="write for example utf-8, cp1252 or utf-16"
        ) from error
    return "utf-8-sig" if name == "utf-8" else name


def _encoding(head: bytes, counts: Utf8Counts) -> tuple[str, bool]:
    for mark, name in BOMS:
        if head.startswith(mark):
            return name, False
    half = max(len(head) // 2, 1)
    if head[1::2].count(0) > half * MANY and head[0::2].count(0) <= half * MANY:
        return "utf-16-le", True
    if head[0::2].count(0) > half * MANY and head[1::2].count(0) <= half * MANY:
        return "utf-16-be", True
    if counts.bad > counts.good:
        return LEGACY, True
    return "utf-8", False  # the few rows that are not are rejected, each with its line


class Utf8Counts:
    """How many characters beyond ASCII are UTF-8, and how many bytes are not."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.good = self.bad = 0

    def add(self, piece: bytes) -> None:
        text = self._decoder.decode(piece)
        if not text.isascii():
            bad = len(ESCAPED.findall(text))
            self.bad += bad
            self.good += len(text) - len(text.encode("ascii", "ignore")) - bad
