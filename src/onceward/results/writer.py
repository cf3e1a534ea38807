"""Encode a result value by value. Types that MessagePack does not support get an extension tag."""

from __future__ import annotations

import collections
import datetime as dt
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import ormsgpack

from onceward.protocol.unstored import NOT_NAMED

from .extensions import NotStored, Tag, Unstorable, int_bytes, is_utf8, leaf_of, pack
from .rebuild import HiddenState, Shape, class_name, shape_of

# Each level costs a reader two or three of Python's thousand stack frames, and the caller needs some too. Plain lists
# and dicts cost none, and up to the 255 levels of ormsgpack can be stored, but that is not guaranteed.
MAX_DEPTH: Final = 100
ANY_KEY: Final = "[…]"  # in records and logs, replaces a key of a dict, which may be payload
_UNCHANGED: Final = frozenset((type(None), bool, float, bytes))


class Writer:
    """Rewrites one value, with everything inside it, into values that ormsgpack writes directly."""

    __slots__ = ("_shapes", "objects")

    def __init__(self, shapes: Mapping[type, Shape]) -> None:
        self._shapes = shapes
        self.objects = 0

    def pack(self, value: Any) -> bytes:
        """Return the value in the result format."""
        return pack(self.rewrite(value, 0))

    def rewrite(self, value: Any, depth: int) -> Any:
        """Return the value as plain lists, dicts with str keys, scalars and extensions."""
        kind = type(value)
        if kind in _UNCHANGED:
            return value
        if kind is str:
            return value if is_utf8(value) else ormsgpack.Ext(Tag.TEXT, value.encode("utf-8", "surrogatepass"))
        if kind is int:
            return value if -(2**63) <= value < 2**64 else ormsgpack.Ext(Tag.BIG_INT, int_bytes(value))
        leaf = leaf_of(kind)
        if leaf is not None:
            tag, content = leaf
            return ormsgpack.Ext(tag, content(value))
        if depth >= MAX_DEPTH:
            raise Unstorable(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself")
        if kind is list:
            return self.items(value, depth)
        if kind is dict:
            return self._dict(value, depth)
        composite = COMPOSITES.get(kind)
        if composite is not None:
            tag, parts = composite
            return ormsgpack.Ext(tag, pack(parts(self, value, depth)))
        return self._object(value, depth)

    def items(self, values: Iterable[Any], depth: int) -> list[Any]:
        items: list[Any] = []
        for index, value in enumerate(values):
            try:
                items.append(self.rewrite(value, depth + 1))
            except Unstorable as error:
                raise error.inside(f"[{index}]") from None
        return items

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if not all(type(key) is str and is_utf8(key) for key in value):
            return ormsgpack.Ext(Tag.MAP, pack(self.pairs(value, depth)))
        return self._fields(value, depth, "[{!r}]", ANY_KEY)

    def pairs(self, value: Mapping[Any, Any], depth: int) -> list[Any]:
        flat: list[Any] = []
        try:
            for key, item in value.items():
                flat += (self.rewrite(key, depth + 1), self.rewrite(item, depth + 1))
        except Unstorable as error:
            raise error.inside(ANY_KEY) from None
        return flat

    def _fields(self, value: Mapping[str, Any], depth: int, step: str, public: str | None = None) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, item in value.items():
            try:
                fields[name] = self.rewrite(item, depth + 1)
            except Unstorable as error:
                raise error.inside(step.format(name), public) from None
        return fields

    def unordered(self, values: Iterable[Any], depth: int) -> list[Any]:
        """Return the members sorted, so that equal sets have equal bytes and repeated completions compare equal."""
        return sorted(self.items(values, depth), key=pack)

    def _object(self, value: Any, depth: int) -> Any:
        kind = type(value)
        shape = self._shapes.get(kind)
        if shape is None:
            if isinstance(value, NotStored):
                raise Unstorable(value.reason)
            name = class_name(kind)
            if shape_of(kind) is not None:
                raise Unstorable(f"{name} {NOT_NAMED}")
            raise Unstorable(f"{name} is not a type that can be stored")
        try:
            state = shape.take(value)
        except HiddenState as error:
            raise Unstorable(str(error), f"{shape.name} has attributes outside its declared fields") from None
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


def _time_parts(writer: Writer, value: dt.datetime | dt.time, depth: int) -> list[Any]:
    return [value.replace(tzinfo=None).isoformat(), value.fold, _zone(writer, value.tzinfo, depth)]


# Types that contain other values.
COMPOSITES: Final[dict[type, tuple[Tag, Callable[[Writer, Any, int], Any]]]] = {
    tuple: (Tag.TUPLE, Writer.items),
    set: (Tag.SET, Writer.unordered),
    frozenset: (Tag.FROZENSET, Writer.unordered),
    range: (Tag.RANGE, lambda writer, value, depth: writer.items((value.start, value.stop, value.step), depth)),
    collections.deque: (Tag.DEQUE, lambda writer, value, depth: [value.maxlen, *writer.items(value, depth)]),
    collections.OrderedDict: (Tag.ORDERED_DICT, Writer.pairs),
    collections.Counter: (Tag.COUNTER, Writer.pairs),
    dt.datetime: (Tag.DATETIME, _time_parts),
    dt.time: (Tag.TIME, _time_parts),
}
