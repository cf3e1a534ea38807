"""Encode results: a replay has the type and the value of the first call.

The format is MessagePack. Types that MessagePack cannot distinguish (tuple and list, Decimal and str, a dataclass and a
dict) are stored as extensions with our own tags. Plain JSON-like values take a fast path that writes the same format.
Nothing is pickled. A class name from a store is only looked up among the classes that the return annotation declares.
A value that cannot be restored exactly raises `Unstorable` while it is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import ormsgpack

from onceward.errors import ResultCorrupt, ResultError, UnknownCodec

from .declared import declared_shapes
from .extensions import EXACT, NotStored, Unstorable
from .outer_types import outer_types
from .plain import LEAVES, is_plain
from .reader import RUNS_AGAIN, ResultReader
from .rebuild import FieldsChanged, Shape
from .writer import MAX_DEPTH, Writer

__all__ = ["MAX_DEPTH", "ResultType", "Unstorable"]

# ormsgpack writes bytearray and memoryview like bytes, and accepts Ext objects of other code. Every bin and ext in
# MessagePack starts with one of these bytes. They may also occur inside numbers and text; then the value is checked.
_may_need_writer: Final = re.compile(rb"[\xc4-\xc9\xd4-\xd8]").search
_FRAMED: Final = b"\xc1"  # no MessagePack begins with it
_packb = ormsgpack.packb
_unpackb = ormsgpack.unpackb


class ResultType:
    """The declared return type of a function. Built once per function; `encode` and `decode` are thread-safe."""

    __slots__ = ("_by_class", "_by_name", "_encodable", "_outer", "_verify")
    is_declared: ClassVar[bool] = True
    """False: the value's own classes are stored (`value_type.py`)."""

    def __init__(self, annotation: Any = Any, *, verify: bool = True, classes_only: bool = False) -> None:
        """`classes_only`: the annotation lists the classes that may occur, but is not the type of the value."""
        self._by_name: Mapping[str, Shape] = declared_shapes(annotation)
        self._by_class: Mapping[type, Shape] = {shape.cls: shape for shape in self._by_name.values()}
        self._outer = None if classes_only else outer_types(annotation)
        self._encodable = None if self._outer is None else (*self._outer, NotStored)  # `NotStored` has its own reason
        self._verify = verify

    def encode(self, value: Any) -> bytes:
        """Return the value as bytes, or raise `Unstorable` with the reason and the path."""
        if self._encodable is not None and not isinstance(value, self._encodable):
            raise Unstorable(f"it is {self._contradiction(value)}")
        try:
            data = _packb(value, None, EXACT)
        except TypeError:
            return self._encode_with_writer(value)
        if type(value) in LEAVES or _may_need_writer(data) is None or is_plain(value):
            return data
        return self._encode_with_writer(value)

    def encode_all(self, values: list[Any]) -> list[bytes]:
        """Encode many values: faster than one by one if they are plain and small."""
        try:
            packed = [_packb(value, None, EXACT) for value in values]
        except TypeError:
            packed = []
        if packed and is_plain(values) and all(map(self.allows, values)):
            return packed
        return [self.encode(value) for value in values]

    def _encode_with_writer(self, value: Any) -> bytes:
        writer = Writer(self._by_class)
        try:
            data = writer.pack(value)
            if writer.objects and self._verify:
                self._check(data)
        except Unstorable:
            raise
        except RecursionError:
            raise Unstorable(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself") from None
        except ResultCorrupt as error:
            raise Unstorable(f"it cannot be rebuilt: {error}", "an instance of its class cannot be rebuilt") from error
        except Exception as error:  # the effect is done: a bug in the class of a result must not fail the call
            raise Unstorable(f"reading it raised {type(error).__name__}") from error
        return data

    def _check(self, data: bytes) -> None:
        if Writer(self._by_class).pack(self.decode(data)) != data:
            raise Unstorable("an instance of its class is not equal after decoding")

    def allows(self, value: Any) -> bool:
        """Return whether the value has the declared type. Members of containers are not checked."""
        return self._outer is None or isinstance(value, self._outer)

    def _contradiction(self, value: Any) -> str:
        declared = " or ".join(one.__name__ for one in self._outer or ())
        return f"{type(value).__name__}, but the return annotation declares {declared}"

    def decode(self, data: bytes | memoryview) -> Any:
        """Return a fresh copy of the encoded value. Raise `ResultCorrupt` if it is not of the declared type."""
        try:
            value = _unpackb(data)  # enough for plain data; raises for extensions
        except ValueError:
            value = self._rebuild(data)
        if self._outer is not None and not isinstance(value, self._outer):
            raise ResultCorrupt(
                f"the stored result is {self._contradiction(value)}",
                hint=f"correct the annotation if older results have another type {RUNS_AGAIN}",
            )
        return value

    def _rebuild(self, data: bytes | memoryview) -> Any:
        if data[:1] == _FRAMED:
            raise UnknownCodec(
                "the stored result is in frames, the format of an early version of Onceward",
                hint=f"read it with the version that wrote it, or forget the key {RUNS_AGAIN}",
            )
        reader = ResultReader(self._by_name)
        try:
            return reader.read(data)
        except ValueError as error:
            cause = reader.failure  # ormsgpack does not set the cause
            if cause is None:
                raise ResultCorrupt("the stored result is not valid MessagePack") from error
        if isinstance(cause, ResultError) or not isinstance(cause, Exception):
            raise cause
        if isinstance(cause, FieldsChanged):
            raise ResultCorrupt(
                f"the stored result was written by another version of its class: {cause}",
                hint=f"give new fields a default, and do not remove old ones {RUNS_AGAIN}",
            ) from cause
        raise ResultCorrupt(f"the stored result cannot be rebuilt: {type(cause).__name__}") from cause
