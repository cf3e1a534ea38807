"""Encode a result value by value. Types that MessagePack does not support get an extension tag.

Large lists and dicts are written in frames as they grow (see `frames.py`).
"""

from __future__ import annotations

import collections
import datetime as dt
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import ormsgpack

from onceward.keys.headers import array
from onceward.keys.pace import current_pause
from onceward.keys.runs import LIGHT, in_order
from onceward.protocol.unstored import NOT_NAMED

from .extensions import Tag, Unstorable, int_bytes, is_utf8, leaf_of, pack
from .frames import BYTES, ENTRIES, ITEMS, RAW_FROM, Frames, reference
from .rebuild import HiddenState, Shape, class_name, shape_of

# Each level costs a reader two or three of Python's thousand stack frames, and the caller needs some too. Plain lists
# and dicts cost none, and up to the 255 levels of ormsgpack can be stored, but that is not guaranteed.
MAX_DEPTH: Final = 100
_STEP: Final = 256  # weight written between two pauses, in less than a millisecond
_UNCHANGED: Final = frozenset((type(None), bool, float))


class Writer:
    """Rewrites one value, with everything inside it, into values that ormsgpack writes directly."""

    __slots__ = ("_frames", "_light", "_pause", "_shapes", "_step", "_weight", "objects")

    def __init__(self, shapes: Mapping[type, Shape], *, light: int = LIGHT) -> None:
        self._shapes = shapes
        self._light = light  # heavier values are written in frames
        self._step = min(light, _STEP)
        self._frames: Frames | None = None
        self._pause = current_pause()
        self._weight = 0  # of rewritten values that are not in a frame yet, counted like `runs.weigh`
        self.objects = 0

    def pack(self, value: Any) -> list[bytes]:
        """Return the value in the result format, in pieces."""
        tree = self.rewrite(value, 0)
        return [pack(tree)] if self._frames is None else self._frames.whole(tree)

    def rewrite(self, value: Any, depth: int) -> Any:
        """Return the value as plain lists, dicts with str keys, scalars and extensions."""
        self._weight += 1
        kind = type(value)
        if kind in _UNCHANGED:
            return value
        if kind is str:
            self._weight += len(value)
            return value if is_utf8(value) else ormsgpack.Ext(Tag.TEXT, value.encode("utf-8", "surrogatepass"))
        if kind is int:
            return value if -(2**63) <= value < 2**64 else ormsgpack.Ext(Tag.BIG_INT, int_bytes(value))
        if kind is bytes:
            return self._bytes(value)
        leaf = leaf_of(kind)
        if leaf is not None:
            tag, content = leaf
            data = content(value)
            self._weight += len(data)
            return ormsgpack.Ext(tag, data)
        if depth >= MAX_DEPTH:
            raise Unstorable(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself")
        if kind is list:
            return self.items(value, depth)
        if kind is dict:
            return self._dict(value, depth)
        composite = _COMPOSITES.get(kind)
        if composite is not None:
            tag, parts = composite
            return ormsgpack.Ext(tag, pack(parts(self, value, depth)))
        return self._object(value, depth)

    def _bytes(self, value: bytes) -> Any:
        if RAW_FROM < len(value) > self._light:
            return reference(self._frame(BYTES, value, None))
        self._weight += len(value)
        return value

    def items(self, values: Iterable[Any], depth: int, *head: Any) -> Any:
        """Return `head` and the rewritten values; a reference if they were written in frames."""
        items = [*head]
        gone, part, start = -len(items), None, self._weight
        soon = start + self._step
        try:
            for value in values:
                items.append(self.rewrite(value, depth + 1))
                if self._weight > soon:
                    done = len(items)
                    part, soon = self._flush_if_large(ITEMS, items, part, start)
                    gone += done - len(items)
        except Unstorable as error:
            raise error.inside(f"[{gone + len(items)}]") from None
        return items if part is None else self._last(ITEMS, items, part)

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if not all(type(key) is str and is_utf8(key) for key in value):
            return ormsgpack.Ext(Tag.MAP, pack(self.pairs(value, depth)))
        return self._fields(value, depth, "[{!r}]")

    def pairs(self, value: Mapping[Any, Any], depth: int) -> Any:
        flat: list[Any] = []
        part, start = None, self._weight
        soon = start + self._step
        for key, item in value.items():
            try:
                flat += (self.rewrite(key, depth + 1), self.rewrite(item, depth + 1))
            except Unstorable as error:
                raise error.inside("[…]") from None
            if self._weight > soon:
                part, soon = self._flush_if_large(ITEMS, flat, part, start)
        return flat if part is None else self._last(ITEMS, flat, part)

    def _fields(self, value: Mapping[str, Any], depth: int, step: str) -> Any:
        fields: dict[str, Any] = {}
        part, start = None, self._weight
        soon = start + self._step
        for name, item in value.items():
            try:
                fields[name] = self.rewrite(item, depth + 1)
            except Unstorable as error:
                raise error.inside(step.format(name)) from None
            self._weight += len(name)
            if self._weight > soon:
                part, soon = self._flush_if_large(ENTRIES, fields, part, start)
        return fields if part is None else self._last(ENTRIES, fields, part)

    def unordered(self, values: Iterable[Any], depth: int) -> Any:
        """Return the members sorted, so that equal sets have equal bytes and repeated completions compare equal."""
        # No frames inside members: their numbers would depend on the iteration order of the set.
        members_writer = Writer(self._shapes, light=sys.maxsize)
        members = members_writer.items(values, depth)
        self.objects += members_writer.objects
        if members_writer._weight <= self._light:
            self._weight += members_writer._weight
            return sorted(members, key=pack)
        part: int | None = None
        run: list[bytes] = []
        room = self._light
        for member in in_order([pack(member) for member in members]):
            run.append(member)
            room -= len(member)
            if room < 0:
                part, room = self._frame(ITEMS, array(len(run)) + b"".join(run), part), self._light
                run.clear()
        if run or part is None:
            part = self._frame(ITEMS, array(len(run)) + b"".join(run), part)
        return reference(part)

    def _flush_if_large(self, kind: int, held: Any, part: int | None, start: int) -> tuple[int | None, int]:
        """Pause, and move the content of a container to a frame if it is large. Return the weight of the next check."""
        if self._pause is not None:
            self._pause()
        full = start + self._light
        if self._weight > full:
            part, self._weight = self._frame(kind, pack(held), part), start
            held.clear()
        return part, min(self._weight + self._step, full)

    def _last(self, kind: int, held: Any, part: int) -> Any:
        return reference(self._frame(kind, pack(held), part) if held else part)

    def _frame(self, kind: int, content: bytes, part: int | None) -> int:
        if self._frames is None:
            self._frames = Frames()
        return self._frames.add(kind, content, part)

    def _object(self, value: Any, depth: int) -> Any:
        kind = type(value)
        shape = self._shapes.get(kind)
        if shape is None:
            name = class_name(kind)
            if shape_of(kind) is not None:
                raise Unstorable(f"{name} {NOT_NAMED}")
            raise Unstorable(f"{name} is not a type that can be stored")
        try:
            state = shape.take(value)
        except HiddenState as error:
            raise Unstorable(str(error)) from None
        self.objects += 1
        return ormsgpack.Ext(Tag.OBJECT, pack([shape.name, self._fields(state, depth, ".{}")]))


def _zone(writer: Writer, zone: dt.tzinfo | None, depth: int) -> Any:
    kind = type(zone)
    of_pydantic = getattr(
        sys.modules.get("pydantic_core"), "TzInfo", None
    )  # the time zone of times that pydantic parsed
    if zone is not None and kind is of_pydantic:
        offset = zone.utcoffset(None) or dt.timedelta()
        return ormsgpack.Ext(Tag.PYDANTIC_ZONE, int_bytes(round(offset.total_seconds())))
    if zone is not None and leaf_of(kind) is None:
        raise Unstorable(f"time zones of {class_name(kind)} cannot be stored; use zoneinfo.ZoneInfo")
    return writer.rewrite(zone, depth + 1)


# Types that contain other values.
_COMPOSITES: Final[dict[type, tuple[Tag, Callable[[Writer, Any, int], Any]]]] = {
    tuple: (Tag.TUPLE, Writer.items),
    set: (Tag.SET, Writer.unordered),
    frozenset: (Tag.FROZENSET, Writer.unordered),
    range: (Tag.RANGE, lambda writer, value, depth: writer.items((value.start, value.stop, value.step), depth)),
    collections.deque: (Tag.DEQUE, lambda writer, value, depth: writer.items(value, depth, value.maxlen)),
    collections.OrderedDict: (Tag.ORDERED_DICT, Writer.pairs),
    collections.Counter: (Tag.COUNTER, Writer.pairs),
    dt.datetime: (
        Tag.DATETIME,
        lambda writer, value, depth: [
            value.replace(tzinfo=None).isoformat(),
            value.fold,
            _zone(writer, value.tzinfo, depth),
        ],
    ),
    dt.time: (
        Tag.TIME,
        lambda writer, value, depth: [
            value.replace(tzinfo=None).isoformat(),
            value.fold,
            _zone(writer, value.tzinfo, depth),
        ],
    ),
}
