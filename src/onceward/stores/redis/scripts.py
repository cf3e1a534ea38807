"""Build scripts from the Lua files, and encode their calls: by hash, or with the source if the server lacks them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, cast

import hiredis

from onceward.protocol.audit import AUDIT_RETENTION
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.history import MAX_EVENTS
from onceward.protocol.record import READER
from onceward.protocol.transitions import CLOCK_MARGIN

SCRIPT_FILES: Final[dict[str, tuple[str | tuple[str, ...], ...]]] = {
    "apply": ("record", "claim", ("fields", "cells", "change"), "apply"),
    "apply_signed": ("record", "claim", ("fields", "cells", "audit", "change"), "apply"),
    "read": ("record", "read"),
    "latest": ("record", "numbers", "latest"),
    "save_counts": ("record", "numbers", "save_counts"),
    "read_counts": ("record", "numbers", "read_counts"),
    "append_history": ("record", "fields", "without_result", "history", "append_history"),
    "read_history": ("record", "read_history"),
    "scan": ("record", "fields", "without_result", "scan"),
    "purge": ("record", "fields", "audit", "history", "purge"),
    "read_audit": ("record", "read_audit"),
    "delete_free": ("record", "fields", "history", "delete_free"),
    "add_audit": ("record", "audit", "add_audit"),
    "trim_audit": ("record", "numbers", "trim_audit"),
}
"""The Lua files of each script. The server runs all of them at every call, so a script has no more than it needs.

The files in the inner tuple define `change`. They become the function `define_change`, which runs only if a request
needs it: claims of new and of completed keys do not.
"""

CONSTANTS: Final = {
    "READER": READER,
    "KEEP_UNFINISHED": KEEP_UNFINISHED,
    "CLOCK_MARGIN": CLOCK_MARGIN,
    "KEEP_AUDIT": AUDIT_RETENTION,
    "MAX_EVENTS": MAX_EVENTS,
}


_pack = cast("Callable[[tuple[bytes, ...]], bytes]", hiredis.pack_command)  # its declared type accepts only one part

COMMENT: Final = re.compile(r"--.*")
DECLARATION: Final = re.compile(r"^local ([A-Z][A-Z_, ]*) = ([0-9, ]+)$", re.MULTILINE)
WORD: Final = re.compile(r"'[^'\n]*'|\b[A-Z][A-Z_]*\b")
"""A text in quotes, which stays as it is, or the name of a constant."""


def encode_command(*parts: bytes) -> bytes:
    """Encode a command. redis.asyncio would do the same in Python, ten times slower for a batch of requests."""
    return _pack(parts)


class Script:
    """One script: encodes its call by hash, and its call with the source for servers that lack it."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()

    def call(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        return _pack((b"EVALSHA", self.sha, b"%d" % len(keys), *keys, *arguments))

    def call_with_source(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        return _pack((b"EVAL", self.source, b"%d" % len(keys), *keys, *arguments))


def read_file(name: str) -> str:
    """Return the text of a Lua file."""
    return files("onceward.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")


def script_text(name: str, read: Callable[[str], str] = read_file) -> str:
    """Return the text of a script. Tests pass another `read`, to change a file."""
    return "".join(
        read(part)
        if isinstance(part, str)
        else f"local function define_change()\n{''.join(map(read, part))}return change\nend\n"
        for part in SCRIPT_FILES[name]
    )


def assemble(text: str) -> Script:
    return Script(_inline_constants(text).encode())


def _inline_constants(text: str) -> str:
    """Replace constants by their values, and remove the comments.

    At every call, the server runs the whole text and binds each name to each function that uses it. Inlining the
    constants reduced the server's time for a single claim by 38 %.
    """
    text = COMMENT.sub("", text)
    values = {name: str(value) for name, value in CONSTANTS.items()}
    for names, numbers in DECLARATION.findall(text):
        values.update(zip(names.split(", "), numbers.split(", "), strict=True))
    return WORD.sub(lambda word: values.get(word[0], word[0]), DECLARATION.sub("", text))


@cache
def script(name: str) -> Script:
    return assemble(script_text(name))
