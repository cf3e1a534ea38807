"""Large results: MessagePack in frames, so that no single call into C has to read or write all of it.

    byte 0      0xC1, with which no MessagePack begins
    then        frames: kind (1 byte), part (4 bytes), size (4 bytes), content

    VALUE       the result itself, and the last frame
    ITEMS       an array: further items of a list
    ENTRIES     a map: further entries of a dict
    BYTES       raw bytes

All frames except VALUE belong to parts, which are numbered from 0 in the order in which they begin. The value refers to
each part exactly once, by an extension with its number. A part is complete before the frame that refers to it. The
frames depend only on the value, so equal results have equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import ormsgpack

from onceward.keys.pace import current_pause
from onceward.keys.runs import LIGHT, PLAIN, runs, weigh

from .extensions import Tag, int_bytes, pack

MARK: Final = b"\xc1"
VALUE, ITEMS, ENTRIES, BYTES = range(4)

_HEAD: Final = struct.Struct(">BII")
RAW_FROM: Final = 256 * 1024  # bytes; copying fewer takes hardly any time
_AT_ONCE: Final = 256 * 1024


class Frames:
    """Writes the frames of one value."""

    __slots__ = ("_pause", "parts", "pieces")

    def __init__(self) -> None:
        self.pieces = [MARK]
        self.parts = 0
        self._pause = current_pause()

    def add(self, kind: int, content: bytes, part: int | None = None) -> int:
        """Add a frame to this part, or to a new one. Return the number of the part."""
        if part is None:
            part = self.parts
            self.parts += 1
        self.pieces += (_HEAD.pack(kind, part, len(content)), content)
        if self._pause is not None:
            self._pause()
        return part

    def apart(self, value: bytes) -> Any:
        """Write long bytes as a part of their own and return the reference. Return short bytes unchanged."""
        return reference(self.add(BYTES, value)) if len(value) > RAW_FROM else value

    def whole(self, tree: Any) -> list[bytes]:
        """Return all pieces; a single one, without frames, if there are no parts."""
        data = pack(tree)
        if not self.parts:
            return [data]
        return [*self.pieces, _HEAD.pack(VALUE, 0, len(data)), data]


def reference(part: int) -> Any:
    return ormsgpack.Ext(Tag.PART, int_bytes(part))


def framed(value: Any) -> list[bytes]:
    """Return plain data as framed pieces. Raise `TypeError` if it is not plain."""
    frames = Frames()
    return frames.whole(_apart(frames, value, ()))


def _apart(frames: Frames, value: Any, around: tuple[int, ...]) -> Any:
    """Return the value, or a reference if it was written as a part. `around` are the ids of enclosing containers."""
    kind, depth = type(value), len(around)
    if weigh(value, PLAIN, depth) <= LIGHT or kind is str:
        return value
    if kind is bytes:
        return frames.apart(value)
    if id(value) in around:
        raise TypeError("it contains itself")
    around = (*around, id(value))
    part: int | None = None
    for run, light in runs(value, PLAIN, depth + 1):
        if light:
            part = frames.add(ITEMS if kind is list else ENTRIES, pack(run), part)
        elif kind is list:
            part = frames.add(ITEMS, pack([_apart(frames, run[0], around)]), part)
        else:
            small = {key: _apart(frames, held, around) for key, held in run.items()}
            part = frames.add(ENTRIES, pack(small), part)
    return value if part is None else reference(part)


def read(data: bytes | memoryview, parts: list[Any], hook: Callable[[int, bytes], Any]) -> Any:
    """Return the value. Collect its parts in `parts`, where the hook finds them. Raise `ValueError` if invalid."""
    view, position, pause = memoryview(data), len(MARK), current_pause()
    while position + _HEAD.size <= len(view):
        kind, part, size = _HEAD.unpack_from(view, position)
        position += _HEAD.size
        content = view[position : position + size]
        position += size
        if pause is not None:
            pause()
        if len(content) != size or kind > BYTES:
            raise ValueError("an invalid frame")
        made = _bytes(content) if kind == BYTES else ormsgpack.unpackb(content, ext_hook=hook)
        if kind == VALUE:
            if position != len(view):
                raise ValueError("data after the last frame")
            return made
        _put(parts, part, made)
    raise ValueError("the last frame is missing")


def _put(parts: list[Any], part: int, made: Any) -> None:
    if part == len(parts):
        parts.append(made)
    elif part < len(parts) and type(parts[part]) is type(made) is list:
        parts[part].extend(made)
    elif part < len(parts) and type(parts[part]) is type(made) is dict:
        parts[part].update(made)
    else:
        raise ValueError("a frame of an unknown part")


def take(parts: list[Any], part: int) -> Any:
    """Return a part, once: a part with two references could expand exponentially, or contain itself."""
    made, parts[part] = parts[part], _TAKEN
    if made is _TAKEN:
        raise ValueError("a part with two references")
    return made


_TAKEN: Final = object()


def _bytes(content: memoryview) -> bytes:
    """Return a copy. Long content is copied in steps, so that other threads can run in between."""
    if len(content) <= _AT_ONCE:
        return bytes(content)
    from io import BytesIO

    copy, pause = BytesIO(), current_pause()
    for start in range(0, len(content), _AT_ONCE):
        copy.write(content[start : start + _AT_ONCE])
        if pause is not None:
            pause()
    return copy.getvalue()
