"""Build scripts from the Lua files, and call them by hash, or with their source if the server lacks them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from onceward.protocol.audit import AUDIT_RETENTION
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import READER
from onceward.protocol.transitions import CLOCK_MARGIN

from .resp import END, command

SCRIPT_FILES: Final = {
    "fast": ("fast",),
    "apply": ("record", "index", "cells", "audit", "apply"),
    "read": ("record", "read"),
    "latest": ("record", "latest"),
    "save_counts": ("record", "save_counts"),
    "read_counts": ("record", "read_counts"),
    "scan": ("record", "index", "scan"),
    "purge": ("record", "index", "audit", "purge"),
    "read_audit": ("record", "audit", "read_audit"),
    "trim_audit": ("record", "audit", "trim_audit"),
}
"""The Lua files of each script."""

CONSTANTS: Final = {
    "READER": READER,
    "KEEP_UNFINISHED": KEEP_UNFINISHED,
    "CLOCK_MARGIN": CLOCK_MARGIN,
    "KEEP_AUDIT": AUDIT_RETENTION,
}


ID_SIZE: Final = 32
ARGUMENT_HEADERS: Final = tuple(b"\r\n$%d\r\n" % size for size in range(1024))
"""The RESP header of an argument by its size. A lookup costs a fifth of formatting it."""


class Script:
    """One script: builds its call by hash, and its call with the source for servers that lack it."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()

    def call(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        return command((b"EVALSHA", self.sha, b"%d" % len(keys), *keys, *arguments))

    def call_with_source(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        return command((b"EVAL", self.source, b"%d" % len(keys), *keys, *arguments))


class PreparedCall:
    """The call of a script on records, encoded in advance except for the ids, the time and the requests.

    All ids must have the usual size.
    """

    def __init__(self, script: Script, fixed_keys: Sequence[bytes], prefix: bytes) -> None:
        self._fixed_count = len(fixed_keys)
        self._sha = b"$7\r\nEVALSHA\r\n$40\r\n%b\r\n" % script.sha
        self._id = b"\r\n$%d\r\n%b" % (len(prefix) + ID_SIZE, prefix)  # precedes each id
        self._fixed_keys = b"".join(b"\r\n$%d\r\n%b" % (len(key), key) for key in fixed_keys) + self._id
        self._head = self._head_for(1)

    def _head_for(self, number: int) -> bytes:
        """Return everything that precedes the first id."""
        keys = b"%d" % (self._fixed_count + number)
        parts = 5 + self._fixed_count + 2 * number
        return b"*%d\r\n%b$%d\r\n%b%b" % (parts, self._sha, len(keys), keys, self._fixed_keys)

    def call(self, id: bytes, now: bytes, request: bytes) -> bytes:
        return b"%b%b\r\n$8\r\n%b\r\n$0\r\n\r\n$%d\r\n%b\r\n" % (self._head, id, now, len(request), request)

    def call_all(self, ids: Sequence[bytes], now: bytes, requests: Sequence[bytes]) -> bytes:
        try:
            sized = [ARGUMENT_HEADERS[len(request)] + request for request in requests]
        except IndexError:
            sized = [b"\r\n$%d\r\n%b" % (len(request), request) for request in requests]
        head, middle = self._head_for(len(ids)), b"\r\n$8\r\n%b\r\n$0\r\n" % now
        return b"".join((head, self._id.join(ids), middle, *sized, END))


def read_file(name: str) -> str:
    """Return the text of a Lua file."""
    return files("onceward.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")


def assemble(*texts: str) -> Script:
    constants = "".join(f"local {name} = {value}\n" for name, value in CONSTANTS.items())
    return Script("".join((constants, *texts)).encode())


@cache
def script(name: str) -> Script:
    return assemble(*(read_file(part) for part in SCRIPT_FILES[name]))
