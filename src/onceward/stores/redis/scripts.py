"""The Lua files beside this module, as the server takes them: by their hash, or in full if it does not know that."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from onceward.model.audit import KEEP_AUDIT
from onceward.model.cells import KEEP_UNFINISHED
from onceward.model.record import READER
from onceward.model.transitions import CLOCK_MARGIN

from .resp import command

PARTS: Final = {
    "hot": ("hot",),
    "apply": ("record", "cells", "audit", "apply"),
    "look": ("record", "look"),
    "newest": ("record", "newest"),
    "count": ("record", "count"),
    "counted": ("record", "counted"),
    "walk": ("record", "walk"),
    "purge": ("record", "audit", "purge"),
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


class Script:
    """One script: what calls it, and what calls it where the server has lost it."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()

    def call(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        return command((b"EVALSHA", self.sha, b"%d" % len(keys), *keys, *arguments))

    def call_in_full(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        return command((b"EVAL", self.source, b"%d" % len(keys), *keys, *arguments))


class Single:
    """The call of a script with one record and one request, as bytes that are ready but for these two and the time."""

    def __init__(self, called: Script, before: Sequence[bytes], prefix: bytes) -> None:
        whole = command((b"EVALSHA", called.sha, b"%d" % (len(before) + 1), *before, prefix + bytes(ID_SIZE), b"", b""))
        place = whole.index(prefix + bytes(ID_SIZE)) + len(prefix)
        self._head = whole[:place].replace(b"*%d" % (len(before) + 6), b"*%d" % (len(before) + 7), 1)

    def call(self, id: bytes, now: bytes, request: bytes) -> bytes:
        return b"%b%b\r\n$8\r\n%b\r\n$0\r\n\r\n$%d\r\n%b\r\n" % (self._head, id, now, len(request), request)


def read(name: str) -> str:
    """One of the Lua files."""
    return files("onceward.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")


def assemble(*texts: str) -> Script:
    constants = "".join(f"local {name} = {value}\n" for name, value in CONSTANTS.items())
    return Script("".join((constants, *texts)).encode())


@cache
def script(name: str) -> Script:
    return assemble(*(read(part) for part in PARTS[name]))
