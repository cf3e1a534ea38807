"""Find the classes that a return annotation declares, directly or through the fields of other classes.

Only these are rebuilt from stored bytes. A class name found in a store is looked up among them, never imported.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from .rebuild import Shape, shape_of


def declared_shapes(annotation: Any) -> dict[str, Shape]:
    """Return the classes in the annotation by stored name, also inside unions, generics, aliases and fields."""
    shapes: dict[str, Shape] = {}
    seen: list[Any] = []  # a list, compared by identity: not every annotation is hashable
    pending = [annotation]
    while pending:
        hint = pending.pop()
        if any(hint is other for other in seen):
            continue
        seen.append(hint)
        pending.extend(_parts(hint))
        if isinstance(hint, type):
            shape = shape_of(hint)
            if shape is not None:
                shapes.setdefault(shape.name, shape)
            if shape is not None or typing.is_typeddict(hint):
                pending.extend(_field_hints(hint))
    return shapes


def _parts(hint: Any) -> Iterator[Any]:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        yield from {type(value) for value in typing.get_args(hint)}
        return
    if origin is typing.Annotated:
        yield typing.get_args(hint)[0]
        return
    if origin is not None:
        yield origin
    for argument in typing.get_args(hint):
        yield from argument if isinstance(argument, list) else (argument,)  # Callable[[A, B], C]
    if isinstance(hint, typing.NewType):
        yield hint.__supertype__
    elif isinstance(hint, typing.TypeVar):
        yield hint.__bound__
        yield from hint.__constraints__
    elif type(hint).__name__ == "TypeAliasType":  # `type X = …`, from 3.12 on
        try:
            yield hint.__value__
        except NameError:  # it names something that exists only for type checkers
            return


def _field_hints(cls: type) -> Iterator[Any]:
    generic = getattr(cls, "__pydantic_generic_metadata__", None)
    if generic:  # pydantic makes Page[int] a separate class; instances may be of either
        yield generic["origin"]
    model_fields = getattr(cls, "model_fields", None)  # already resolved, with type variables replaced
    if generic is not None and isinstance(model_fields, dict):
        yield from (field.annotation for field in model_fields.values())
    for base in getattr(cls, "__orig_bases__", ()):
        yield from typing.get_args(base)
    try:
        yield from typing.get_type_hints(cls).values()
    except Exception:  # noqa: BLE001  # annotations are user code: one bad name must not hide the other fields
        yield from _hints_one_by_one(cls)


def _hints_one_by_one(cls: type) -> Iterator[Any]:
    for base in cls.__mro__:
        names = vars(sys.modules.get(base.__module__, typing))
        for name, hint in inspect.get_annotations(base).items():
            alone = types.SimpleNamespace(__annotations__={name: hint})
            try:
                yield from typing.get_type_hints(alone, names, {cls.__name__: cls}).values()
            except Exception:  # noqa: BLE001, S112  # unresolvable: values of this type will not be stored
                continue
