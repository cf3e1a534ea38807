"""The protocol of Redis (RESP 2): a command as bytes, and replies from bytes. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Reply = Any
"""bytes, int, None, a list of replies, or a Refusal."""

END = b"\r\n"
TEXT, LIST, REFUSAL, STATUS, NUMBER = b"$*-+:"


class RedisError:
    """What the server says instead of an answer: a code in capitals, then words for people."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def code(self) -> str:
        return self.text.partition(" ")[0].rstrip(":")


class Garbage(Exception):
    """This is not the protocol of Redis."""


def command(parts: Sequence[bytes]) -> bytes:
    pieces = [b"*%d\r\n" % len(parts)]
    for part in parts:
        pieces += (b"$%d\r\n" % len(part), part, END)
    return b"".join(pieces)


def one_text(data: bytes) -> bytes | None:
    """The text, if these bytes are just one and all of it: so is nearly every reply that we get."""
    if data[:1] != b"$":
        return None
    end = data.find(END, 1, 24)
    if end < 0 or data[1:2] == b"-" or len(data) != end + 4 + int(data[1:end]):
        return None
    return data[end + 2 : -2]


class Replies:
    """Bytes go in as they come, replies come out as they are complete. What was read once is not read again."""

    def __init__(self) -> None:
        self._buffer = b""
        self._complete: list[Reply] = []
        self._items, self._left = self._complete, -1  # where the next item belongs, and how many are left to come there
        self._around: list[tuple[list[Reply], int]] = []  # the lists that it is in, outermost first

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that are complete now. Most often all of it is one, in one piece."""
        buffer = self._buffer + data if self._buffer else data
        items, left, around = self._items, self._left, self._around
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
                    around.append((items, left))
                    items, left = [], number
                    continue
                item = None if number else []
            else:
                item, at = _line(kind, buffer[at + 1 : line_end]), after
            items.append(item)
            left -= 1
            while not left:  # a list is complete, and perhaps the one that it is in
                item = items
                items, left = around.pop()
                items.append(item)
                left -= 1
        self._buffer, self._items, self._left = buffer[at:], items, left
        complete = self._complete[:]
        self._complete.clear()
        return complete


def _line(kind: int, line: bytes) -> Reply:
    if kind == REFUSAL:
        return RedisError(line.decode("utf-8", "replace"))
    if kind == STATUS:
        return line
    if kind == NUMBER:
        return int(line)
    raise Garbage(f"not a reply of Redis: {bytes((kind,)) + line[:40]!r}")
