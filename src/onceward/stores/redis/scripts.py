"""The Lua files beside this module, as the server takes them: by their hash, or in full if it does not know that."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from onceward.protocol.audit import KEEP_AUDIT
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import READER
from onceward.protocol.transitions import CLOCK_MARGIN

from .resp import END, command

PARTS: Final = {
    "hot": ("hot",),
    "apply": ("record", "index", "cells", "audit", "apply"),
    "look": ("record", "look"),
    "newest": ("record", "newest"),
    "count": ("record", "count"),
    "counted": ("record", "counted"),
    "walk": ("record", "index", "walk"),
    "purge": ("record", "index", "audit", "purge"),
    "trail": ("record", "audit", "trail"),
    "trim": ("record", "audit", "trim"),
}
"""Which files make up a script."""

CONSTANTS: Final = {
    "READER": READER,
    "KEEP_UNFINISHED": KEEP_UNFINISHED,
    "CLOCK_MARGIN": CLOCK_MARGIN,
    "KEEP_AUDIT": KEEP_AUDIT,
}


ID_SIZE: Final = 32
SIZES: Final = tuple(b"\r\n$%d\r\n" % size for size in range(1024))
"""What stands before an argument of that size: looked up, it costs a fifth of what it costs to write."""


class Script:
    """One script: what calls it, and what calls it where the server has lost it."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()

    def call(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        return command((b"EVALSHA", self.sha, b"%d" % len(keys), *keys, *arguments))

    def call_in_full(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        return command((b"EVAL", self.source, b"%d" % len(keys), *keys, *arguments))


class Prepared:
    """The call of a script with records and as many requests, as bytes that are ready but for these and the time.

    Its ids have to be of the usual size.
    """

    def __init__(self, called: Script, before: Sequence[bytes], prefix: bytes) -> None:
        self._others = len(before)
        self._sha = b"$7\r\nEVALSHA\r\n$40\r\n%b\r\n" % called.sha
        self._id = b"\r\n$%d\r\n%b" % (len(prefix) + ID_SIZE, prefix)  # what stands before each
        self._before = b"".join(b"\r\n$%d\r\n%b" % (len(key), key) for key in before) + self._id
        self._head = self._for(1)

    def _for(self, number: int) -> bytes:
        """All that comes before the first id."""
        keys = b"%d" % (self._others + number)
        parts = 5 + self._others + 2 * number
        return b"*%d\r\n%b$%d\r\n%b%b" % (parts, self._sha, len(keys), keys, self._before)

    def call(self, id: bytes, now: bytes, request: bytes) -> bytes:
        return b"%b%b\r\n$8\r\n%b\r\n$0\r\n\r\n$%d\r\n%b\r\n" % (self._head, id, now, len(request), request)

    def call_all(self, ids: Sequence[bytes], now: bytes, requests: Sequence[bytes]) -> bytes:
        try:
            sized = [SIZES[len(one)] + one for one in requests]
        except IndexError:
            sized = [b"\r\n$%d\r\n%b" % (len(one), one) for one in requests]
        head, middle = self._for(len(ids)), b"\r\n$8\r\n%b\r\n$0\r\n" % now
        return b"".join((head, self._id.join(ids), middle, *sized, END))


def read(name: str) -> str:
    """One of the Lua files."""
    return files("onceward.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")


def assemble(*texts: str) -> Script:
    constants = "".join(f"local {name} = {value}\n" for name, value in CONSTANTS.items())
    return Script("".join((constants, *texts)).encode())


@cache
def script(name: str) -> Script:
    return assemble(*(read(part) for part in PARTS[name]))
