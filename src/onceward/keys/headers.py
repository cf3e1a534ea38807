"""MessagePack headers of arrays, maps, bytes and text, for encoders that write the content in pieces."""

from __future__ import annotations


def array(items: int) -> bytes:
    return bytes((0x90 | items,)) if items < 1 << 4 else _sized(0xDC, items)


def mapping(entries: int) -> bytes:
    return bytes((0x80 | entries,)) if entries < 1 << 4 else _sized(0xDE, entries)


def binary(size: int) -> bytes:
    return bytes((0xC4, size)) if size < 1 << 8 else _sized(0xC5, size)


def text(size: int) -> bytes:
    if size < 1 << 5:
        return bytes((0xA0 | size,))
    return bytes((0xD9, size)) if size < 1 << 8 else _sized(0xDA, size)


def _sized(short: int, size: int) -> bytes:
    if size < 1 << 16:
        return bytes((short,)) + size.to_bytes(2, "big")
    return bytes((short + 1,)) + size.to_bytes(4, "big")
