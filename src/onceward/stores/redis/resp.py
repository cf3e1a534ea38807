"""The Redis protocol (RESP 2): encode commands and parse replies. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Reply = Any
"""bytes, int, None, a list of replies, or a `RedisError`."""

END = b"\r\n"
TEXT, LIST, ERROR, STATUS, NUMBER = b"$*-+:"


class RedisError:
    """An error reply: a code in capitals, then a text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def code(self) -> str:
        return self.text.partition(" ")[0].rstrip(":")


class ProtocolError(Exception):
    """The received bytes are not the Redis protocol."""


def command(parts: Sequence[bytes]) -> bytes:
    pieces = [b"*%d\r\n" % len(parts)]
    for part in parts:
        pieces += (b"$%d\r\n" % len(part), part, END)
    return b"".join(pieces)


def parse_single_text(data: bytes) -> bytes | None:
    """Return the text if the bytes are exactly one complete bulk string, as nearly every reply is."""
    if data[:1] != b"$":
        return None
    end = data.find(END, 1, 24)
    if end < 0 or data[1:2] == b"-" or len(data) != end + 4 + int(data[1:end]):
        return None
    return data[end + 2 : -2]


class ReplyParser:
    """Parses replies incrementally. Bytes that were parsed once are not parsed again."""

    def __init__(self) -> None:
        self._buffer = b""
        self._complete: list[Reply] = []
        self._items, self._left = self._complete, -1  # the current list, and how many items it still needs
        self._outer: list[tuple[list[Reply], int]] = []  # the enclosing lists, outermost first

    def feed(self, data: bytes) -> list[Reply]:
        """Add bytes and return the replies that are complete now. Usually that is exactly one."""
        buffer = self._buffer + data if self._buffer else data
        items, left, outer = self._items, self._left, self._outer
        at, size = 0, len(buffer)
        item: Reply
        while (line_end := buffer.find(END, at)) >= 0:
            kind, after = buffer[at], line_end + 2
            if kind == TEXT:
                end = after + int(buffer[at + 1 : line_end])
                if end < after:
                    item, at = None, after
                elif size < end + 2:
                    break
                else:
                    item, at = buffer[after:end], end + 2
            elif kind == LIST:
                number, at = int(buffer[at + 1 : line_end]), after
                if number > 0:
                    outer.append((items, left))
                    items, left = [], number
                    continue
                item = None if number else []
            else:
                item, at = _parse_line(kind, buffer[at + 1 : line_end]), after
            items.append(item)
            left -= 1
            while not left:  # a list is complete, and maybe the enclosing ones, too
                item = items
                items, left = outer.pop()
                items.append(item)
                left -= 1
        self._buffer, self._items, self._left = buffer[at:], items, left
        complete = self._complete[:]
        self._complete.clear()
        return complete


def _parse_line(kind: int, line: bytes) -> Reply:
    if kind == ERROR:
        return RedisError(line.decode("utf-8", "replace"))
    if kind == STATUS:
        return line
    if kind == NUMBER:
        return int(line)
    raise ProtocolError(f"not a Redis reply: {bytes((kind,)) + line[:40]!r}")
