"""Find the class in a return annotation that makes every result unstorable, such as `-> JSONResponse`.

It is reported when a function is decorated, because otherwise only the first duplicate would show it.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from typing import Any, Final

from .extensions import RARE, leaf_of
from .outer_types import AWAITED
from .plain import LEAVES
from .rebuild import shape_of
from .writer import COMPOSITES

_CONTAINERS: Final = (list, dict, *COMPOSITES)
_STORABLE: Final = (*LEAVES, *_CONTAINERS)


def never_stored(hint: Any) -> type | None:
    """Return the class because of which no value of this type can be stored; None if there may be such values.

    A container is judged by its members: an empty one could be stored, but that is not why it was declared.
    """
    if isinstance(hint, typing.NewType):
        return never_stored(hint.__supertype__)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        found = [never_stored(one) for one in arguments if one is not types.NoneType]
        return found[0] if found and all(found) else None
    if origin is typing.Annotated:
        return never_stored(arguments[0])
    if origin in AWAITED:
        return never_stored(arguments[-1]) if arguments else None
    if origin in _CONTAINERS:
        members = map(never_stored, arguments)
        return next((one for one in members if one is not None), None)
    cls = hint if origin is None else origin
    return cls if isinstance(cls, type) and cls is not Any and not _may_be_stored(cls) else None


def _may_be_stored(cls: type) -> bool:
    if hasattr(cls, "__mapper__"):  # SQLAlchemy keeps the state of a session in its instances
        return False
    if inspect.isabstract(cls) or typing.Protocol in cls.__bases__ or typing.is_typeddict(cls):
        return True
    return _has_storable_subclass(cls) or leaf_of(cls) is not None or shape_of(cls) is not None


def _has_storable_subclass(cls: type) -> bool:
    """Return whether a type that we store is accepted as this class: `object`, `Sequence`, `int`, `Path`."""
    rare = (getattr(sys.modules.get(module), name, None) for module, name in RARE)
    try:
        return any(issubclass(one, cls) for one in (*_STORABLE, *rare) if isinstance(one, type))
    except TypeError:  # a class that cannot be compared
        return True
