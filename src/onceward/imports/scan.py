"""Scan a file: hash its content and detect its encoding, in one pass."""

from __future__ import annotations

import codecs
import hashlib
import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from onceward.errors import SourceError

from .hashed_file import open_regular_file

CHUNK_BYTES: Final = 1 << 20

BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix of this one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LEGACY: Final = "cp1252"
"""What spreadsheets on Western Windows write. It is a guess, and reported as one."""

COMPRESSED_PREFIXES: Final = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ")
"""The first bytes of gzip, zip (including .xlsx), zstd and xz. No text begins like this."""

HEAD_BYTES: Final = 4096  # enough to recognise UTF-16 without a mark: about every second byte is NUL
NUL_SHARE: Final = 0.3

ESCAPED = re.compile("[\udc80-\udcff]")
"""Bytes that are invalid in the encoding, as `surrogateescape` decodes them."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""These, and unpaired surrogates: databases reject them."""


class FileScan(Struct, frozen=True):
    """What scanning a file found, regardless of its name."""

    sha256: str
    size: int
    encoding: str
    guessed: bool = False
    """True if the encoding is a guess: nothing in the file proves it."""


def scan(path: Path, encoding: str | None = None) -> FileScan:
    """Hash the file, and detect its encoding unless it is given."""
    if encoding is not None:
        encoding = checked_encoding(encoding)
    hashed, size, head = hashlib.sha256(), 0, b""
    counts = Utf8Counts()
    with open_regular_file(path) as file:
        while piece := file.read(CHUNK_BYTES):
            hashed.update(piece)
            size += len(piece)
            head = head or piece[:HEAD_BYTES]
            if head.startswith(COMPRESSED_PREFIXES):
                raise SourceError(f"{path.name} is compressed", hint="decompress it first; save a spreadsheet as CSV")
            if encoding is None:
                counts.add(piece)
    if encoding is not None:
        return FileScan(hashed.hexdigest(), size, encoding)
    found, guessed = _detect_encoding(head, counts)
    return FileScan(hashed.hexdigest(), size, found, guessed)


def checked_encoding(encoding: str) -> str:
    """Return the encoding by its usual name. UTF-8 with and without a byte order mark are the same choice."""
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # raises for codecs that do not encode text, such as zlib
    except LookupError as error:
        raise SourceError(
            f"there is no text encoding {encoding!r}", hint="use for example utf-8, cp1252 or utf-16"
        ) from error
    return "utf-8-sig" if name == "utf-8" else name


def _detect_encoding(head: bytes, counts: Utf8Counts) -> tuple[str, bool]:
    for mark, name in BOMS:
        if head.startswith(mark):
            return name, False
    half = max(len(head) // 2, 1)
    if head[1::2].count(0) > half * NUL_SHARE and head[0::2].count(0) <= half * NUL_SHARE:
        return "utf-16-le", True
    if head[0::2].count(0) > half * NUL_SHARE and head[1::2].count(0) <= half * NUL_SHARE:
        return "utf-16-be", True
    if counts.bad > counts.good:
        return LEGACY, True
    return "utf-8", False  # rows that are not UTF-8 are rejected, each with its line


class Utf8Counts:
    """Counts the non-ASCII characters that are valid UTF-8, and the bytes that are not."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.good = self.bad = 0

    def add(self, piece: bytes) -> None:
        text = self._decoder.decode(piece)
        if not text.isascii():
            bad = len(ESCAPED.findall(text))
            self.bad += bad
            self.good += len(text) - len(text.encode("ascii", "ignore")) - bad
