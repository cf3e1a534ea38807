"""Results as bytes: a replay has the type and the value of the first call.

The format is MessagePack. What MessagePack cannot tell apart (tuple and list, Decimal and str, a dataclass and a dict)
travels as an extension with a tag of ours. Plain JSON-like values take a fast path that writes the very same format.
Nothing is pickled, and no class is ever looked up by a name from a store, except among those that the return
annotation declares. What cannot come back exactly is `Unstorable`, and that is found out while encoding.
"""

from __future__ import annotations

import collections
import datetime as dt
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import ormsgpack

from onceward.errors import ResultCorrupt, ResultError, UnknownCodec
from onceward.model.declared import declared_shapes
from onceward.model.extensions import BUILDERS, EXACT, SCALARS, Tag, Unstorable, int_bytes, is_utf8, leaf_of, pack
from onceward.model.rebuild import FieldsChanged, HiddenState, Shape, class_name, shape_of

__all__ = ["MAX_DEPTH", "ResultType", "Unstorable"]

# Each level costs a reader two or three frames of Python's thousand, and the caller needs some too. Plain lists and
# dicts cost none and may be stored up to the 254 levels of ormsgpack, but that is not promised.
MAX_DEPTH: Final = 100
# ormsgpack writes bytearray and memoryview as if they were bytes, and lets a foreign Ext through. These bytes begin
# every bin and ext in MessagePack. They also occur inside of numbers and texts: then the careful way is taken for
# nothing, and gives the same bytes.
FEW: Final = 32  # of what a large value holds, the careful way looks at each anyway
_PLAIN: Final = frozenset((type(None), bool, int, float, str))
_NEEDS_CARE: Final = re.compile(rb"[\xc4-\xc9\xd4-\xd8]").search


class ResultType:
    """What a function declares to return. Built once per function; `encode` and `decode` may run in many threads."""

    __slots__ = ("_by_class", "_by_name", "_verify")

    def __init__(self, annotation: Any = Any, *, verify: bool = True) -> None:
        self._by_name = declared_shapes(annotation)
        self._by_class = {shape.cls: shape for shape in self._by_name.values()}
        self._verify = verify

    @property
    def classes(self) -> tuple[str, ...]:
        """The stored names of the classes that may be rebuilt."""
        return tuple(self._by_name)

    def encode(self, value: Any) -> bytes:
        """The value as bytes, or `Unstorable` with the reason and the place."""
        try:
            data = ormsgpack.packb(value, option=EXACT)
        except TypeError:
            return self._encode_with_care(value)
        if _NEEDS_CARE(data) is None or type(value) in SCALARS or _is_plain(value):
            return data  # bytes need care only inside of something, and numbers only look like them
        return self._encode_with_care(value)

    def _encode_with_care(self, value: Any) -> bytes:
        writer = _Writer(self._by_class)
        try:
            data = writer.pack(value)
            if writer.objects and self._verify:
                self._check(data)
        except Unstorable:
            raise
        except RecursionError:
            raise Unstorable(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself") from None
        except ResultCorrupt as error:
            raise Unstorable(f"it cannot be rebuilt: {error}") from error
        except Exception as error:  # the effect is done: broken code in a result's class must not undo that
            raise Unstorable(f"reading it raised {type(error).__name__}") from error
        return data

    def _check(self, data: bytes) -> None:
        if _Writer(self._by_class).pack(self.decode(data)) != data:
            raise Unstorable("an instance of its class does not come back as it was")

    def decode(self, data: bytes) -> Any:
        """A fresh copy of the value that was encoded."""
        try:
            return ormsgpack.unpackb(data)  # plain data needs no more, and refuses extensions
        except ValueError:
            return self._rebuild(data)

    def _rebuild(self, data: bytes) -> Any:
        reader = _Reader(self._by_name)
        try:
            return ormsgpack.unpackb(data, ext_hook=reader.hook)
        except ValueError as error:
            cause = reader.failure  # ormsgpack keeps no cause of its own
            if cause is None:
                raise ResultCorrupt("the stored result is not valid MessagePack") from error
        if isinstance(cause, ResultError) or not isinstance(cause, Exception):
            raise cause
        if isinstance(cause, FieldsChanged):
            raise ResultCorrupt(
                f"the stored result was written by another version of its class: {cause}",
                hint="give new fields a default and keep old ones, or forget the key",
            ) from cause
        raise ResultCorrupt(f"the stored result cannot be rebuilt: {type(cause).__name__}") from cause


def _is_plain(value: Any) -> bool:
    """Whether it is made of what MessagePack tells apart by itself, as far as one can see quickly."""
    kind = type(value)
    if (kind is not dict and kind is not list) or len(value) > FEW:
        return kind in _PLAIN
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        value = value.values()
    for item in value:  # noqa: SIM110 (a generator costs more than this)
        if type(item) not in _PLAIN and not _is_plain(item):
            return False
    return True


class _Writer:
    """Rewrites one value, however deep, into what ormsgpack writes as it is."""

    __slots__ = ("_shapes", "objects")

    def __init__(self, shapes: Mapping[type, Shape]) -> None:
        self._shapes = shapes
        self.objects = 0

    def pack(self, value: Any) -> bytes:
        """The value in the result format."""
        return pack(self.rewrite(value, 0))

    def rewrite(self, value: Any, depth: int) -> Any:
        """The value as plain lists, dicts with str keys, scalars and extensions."""
        kind = type(value)
        if kind in SCALARS:
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
        composite = _COMPOSITES.get(kind)
        if composite is not None:
            tag, parts = composite
            return ormsgpack.Ext(tag, pack(parts(self, value, depth)))
        return self._object(value, depth)

    def items(self, values: Iterable[Any], depth: int) -> list[Any]:
        items: list[Any] = []
        try:
            for value in values:
                items.append(self.rewrite(value, depth + 1))  # noqa: PERF401  # the count says where it went wrong
        except Unstorable as error:
            raise error.inside(f"[{len(items)}]") from None
        return items

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if not all(type(key) is str and is_utf8(key) for key in value):
            return ormsgpack.Ext(Tag.MAP, pack(self.pairs(value, depth)))
        return self._fields(value, depth, "[{!r}]")

    def pairs(self, value: Mapping[Any, Any], depth: int) -> list[Any]:
        flat: list[Any] = []
        for key, item in value.items():
            try:
                flat += (self.rewrite(key, depth + 1), self.rewrite(item, depth + 1))
            except Unstorable as error:
                raise error.inside("[…]") from None
        return flat

    def _fields(self, value: Mapping[str, Any], depth: int, step: str) -> dict[str, Any]:
        fields = {}
        for name, item in value.items():
            try:
                fields[name] = self.rewrite(item, depth + 1)
            except Unstorable as error:
                raise error.inside(step.format(name)) from None
        return fields

    def unordered(self, values: Iterable[Any], depth: int) -> list[Any]:
        # Sorted, so that equal sets are equal bytes and repeated completes compare equal.
        return sorted(self.items(values, depth), key=pack)

    def _object(self, value: Any, depth: int) -> Any:
        kind = type(value)
        shape = self._shapes.get(kind)
        if shape is None:
            name = class_name(kind)
            if shape_of(kind) is not None:
                raise Unstorable(f"{name} is not named in the return annotation")
            raise Unstorable(f"{name} is not a type that can be stored")
        try:
            state = shape.take(value)
        except HiddenState as error:
            raise Unstorable(str(error)) from None
        self.objects += 1
        return ormsgpack.Ext(Tag.OBJECT, pack([shape.name, self._fields(state, depth, ".{}")]))


class _Reader:
    """Rebuilds one value. ormsgpack hides what a hook raises, so the first `failure` is kept here."""

    __slots__ = ("_shapes", "failure")

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self.failure: BaseException | None = None

    def hook(self, tag: int, data: bytes) -> Any:
        """What ormsgpack calls for each extension."""
        try:
            return self._build(tag, data)
        except BaseException as error:
            if self.failure is None:
                self.failure = error
            raise

    def _build(self, tag: int, data: bytes) -> Any:
        build = BUILDERS.get(tag)
        if build is not None:
            return build(data)
        assemble = _ASSEMBLERS.get(tag)
        if assemble is None and tag != Tag.OBJECT:
            raise UnknownCodec(
                f"the stored result has a part of kind {tag}", hint="it needs a newer Onceward to read it"
            )
        parts = ormsgpack.unpackb(data, ext_hook=self.hook)
        return self._object(*parts) if assemble is None else assemble(parts)

    def _object(self, name: str, state: dict[str, Any]) -> Any:
        shape = self._shapes.get(name)
        if shape is None:
            raise ResultCorrupt(
                f"the stored result has an instance of {name}, which the return annotation does not name",
                hint="name the class in the return annotation again, or forget the key",
            )
        try:
            return shape.build(state)
        except FieldsChanged as error:
            raise FieldsChanged(f"{name}: {error}") from error


def _zone(writer: _Writer, zone: dt.tzinfo | None, depth: int) -> Any:
    kind = type(zone)
    if kind is getattr(sys.modules.get("pydantic_core"), "TzInfo", None):  # what pydantic gives to times it parsed
        offset = zone.utcoffset(None)  # type: ignore[union-attr]
        return ormsgpack.Ext(Tag.PYDANTIC_ZONE, int_bytes(round(offset.total_seconds())))  # type: ignore[union-attr]
    if zone is not None and leaf_of(kind) is None:
        raise Unstorable(f"time zones of {class_name(kind)} cannot be stored; use zoneinfo.ZoneInfo")
    return writer.rewrite(zone, depth + 1)


# Types that hold other values.
_COMPOSITES: Final[dict[type, tuple[Tag, Callable[[_Writer, Any, int], list[Any]]]]] = {
    tuple: (Tag.TUPLE, _Writer.items),
    set: (Tag.SET, _Writer.unordered),
    frozenset: (Tag.FROZENSET, _Writer.unordered),
    range: (Tag.RANGE, lambda writer, value, depth: writer.items((value.start, value.stop, value.step), depth)),
    collections.deque: (Tag.DEQUE, lambda writer, value, depth: [value.maxlen, *writer.items(value, depth)]),
    collections.OrderedDict: (Tag.ORDERED_DICT, _Writer.pairs),
    collections.Counter: (Tag.COUNTER, _Writer.pairs),
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


def _pairs(flat: list[Any]) -> zip[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _at(kind: Any) -> Callable[[list[Any]], Any]:
    return lambda parts: kind.fromisoformat(parts[0]).replace(fold=parts[1], tzinfo=parts[2])


_ASSEMBLERS: Final[dict[int, Callable[[list[Any]], Any]]] = {
    Tag.MAP: lambda parts: dict(_pairs(parts)),
    Tag.TUPLE: tuple,
    Tag.SET: set,
    Tag.FROZENSET: frozenset,
    Tag.RANGE: lambda parts: range(*parts),
    Tag.DEQUE: lambda parts: collections.deque(parts[1:], parts[0]),
    Tag.ORDERED_DICT: lambda parts: collections.OrderedDict(_pairs(parts)),
    Tag.COUNTER: lambda parts: collections.Counter(dict(_pairs(parts))),
    Tag.DATETIME: _at(dt.datetime),
    Tag.TIME: _at(dt.time),
}
