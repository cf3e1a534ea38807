"""The type of a result that has no declared type: the classes of the value itself.

It is for blocks (`once.claim`), which have no return annotation. On a replay, a class is looked up by its stored name
among the modules that this process has already imported. Nothing is imported, and no `__getattr__` runs. To accept only
certain classes, declare them: `once.claim(key, type=Receipt)`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, ClassVar, Final

from onceward.protocol.unstored import NOT_FOUND_BY_NAME

from .extensions import Unstorable
from .rebuild import Shape, class_name, shape_of
from .result_type import ResultType

MAX_CACHED: Final = 256  # declared types of blocks; a program has a few


def imported_class(name: str) -> type | None:
    """Return the class with this stored name, if its module has been imported."""
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found if isinstance(found, type) else None


class _ImportedClasses(Mapping[str, Shape]):
    """The shapes of all imported classes, by stored name."""

    def __getitem__(self, name: str) -> Shape:
        found = imported_class(name)
        shape = None if found is None else shape_of(found)
        if shape is None or shape.name != name:
            raise KeyError(name)
        return shape

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _OwnClasses(Mapping[type, Shape]):
    """The shapes of all classes that a replay can find again."""

    def __getitem__(self, cls: type) -> Shape:
        shape = shape_of(cls)
        if shape is None:
            raise KeyError(cls)
        if imported_class(shape.name) is not cls:
            raise Unstorable(f"{class_name(cls)} {NOT_FOUND_BY_NAME}")
        return shape

    def __iter__(self) -> Iterator[type]:
        return iter(())

    def __len__(self) -> int:
        return 0


class ValueType(ResultType):
    """Stores any value with its own classes."""

    __slots__ = ()
    is_declared: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._by_name = _ImportedClasses()
        self._by_class = _OwnClasses()


VALUE_TYPE: Final = ValueType()


def type_for_block(annotation: Any) -> ResultType:
    """Return the type of a block's results: the declared one; without a declaration, that of the value itself."""
    if annotation is Any:
        return VALUE_TYPE
    return _cached(annotation) if isinstance(annotation, Hashable) else ResultType(annotation)


@functools.lru_cache(MAX_CACHED)
def _cached(annotation: Any) -> ResultType:
    return ResultType(annotation)
