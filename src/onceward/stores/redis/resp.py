"""The protocol of Redis (RESP 2): a command as bytes, and replies from bytes. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Reply = Any
"""bytes, int, None, a list of them, or a Refusal."""

END = b"\r\n"


class Refusal:
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


class _Unfinished(Exception):
    """More bytes are needed."""


class Replies:
    """Bytes go in as they come, replies come out as they are complete."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that are complete now. Most often all of it is one, in one piece."""
        buffer = self._buffer + data if self._buffer else data
        replies, at = [], 0
        try:
            while at < len(buffer):
                reply, at = _parse(buffer, at)
                replies.append(reply)
        except _Unfinished:
            pass
        self._buffer = buffer[at:]
        return replies


def _parse(buffer: bytes, at: int) -> tuple[Reply, int]:
    line_end = buffer.find(END, at)
    if line_end < 0:
        raise _Unfinished
    kind, line, after = buffer[at : at + 1], buffer[at + 1 : line_end], line_end + 2
    if kind == b"$":
        end = after + int(line)
        if end < after:
            return None, after
        if len(buffer) < end + 2:
            raise _Unfinished
        return buffer[after:end], end + 2
    if kind == b"-":
        return Refusal(line.decode("utf-8", "replace")), after
    if kind == b"+":
        return line, after
    if kind == b":":
        return int(line), after
    if kind != b"*":
        raise Garbage(f"not a reply of Redis: {buffer[at : at + 40]!r}")
    items = []
    for _ in range(int(line)):
        item, after = _parse(buffer, after)
        items.append(item)
    return items, after
