"""Rebuild values from the extensions of a stored result."""

from __future__ import annotations

import collections
import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final

import ormsgpack

from onceward.errors import ResultCorrupt, UnknownCodec

from .extensions import BUILDERS, Tag
from .rebuild import FieldsChanged, Shape


class UndeclaredClass(ResultCorrupt):
    """The stored result has an instance of a class that is not declared here."""


class ResultReader:
    """Rebuilds one value. ormsgpack hides exceptions of a hook, so the first one is kept in `failure`."""

    __slots__ = ("_shapes", "failure")

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self.failure: BaseException | None = None

    def read(self, data: bytes | memoryview) -> Any:
        """Return the value. Raise `ValueError` for an invalid format, and if a hook raised."""
        return ormsgpack.unpackb(data, ext_hook=self.hook)

    def hook(self, tag: int, data: bytes) -> Any:
        """Build an extension. ormsgpack calls this for each one."""
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
        if assemble is not None:
            return assemble(ormsgpack.unpackb(data, ext_hook=self.hook))
        if tag == Tag.OBJECT:
            return self._object(*ormsgpack.unpackb(data, ext_hook=self.hook))
        raise UnknownCodec(
            f"the stored result has an unknown extension {tag}", hint="reading it needs a newer version of Onceward"
        )

    def _object(self, name: str, state: dict[str, Any]) -> Any:
        shape = self._shapes.get(name) or self._moved(name)
        if shape is None:
            raise UndeclaredClass(
                f"the stored result has an instance of {name}, which the return annotation does not name",
                hint=_UNDECLARED if self._shapes else _NOTHING_DECLARED,
            )
        try:
            return shape.build(state)
        except FieldsChanged as error:
            raise FieldsChanged(f"{name}: {error}") from error

    def _moved(self, name: str) -> Shape | None:
        """Return the only declared class of that name in any module: classes move, and a script is `__main__`."""
        qualified = name.partition(":")[2]
        found = [shape for other, shape in self._shapes.items() if other.partition(":")[2] == qualified]
        return found[0] if len(found) == 1 else None


RUNS_AGAIN: Final = "(forgetting the key makes its next delivery run the work again)"
_UNDECLARED: Final = f"name that class in the return annotation; its module may be another one {RUNS_AGAIN}"
_NOTHING_DECLARED: Final = (
    "no class is declared here: call the function whose return annotation names it, pass type= to once.claim,"
    " or show the plain fields"
    " with `onceward show KEY --value`"
)


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
