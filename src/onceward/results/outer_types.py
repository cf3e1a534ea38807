"""Find the classes that a value must be an instance of, to be returned under an annotation."""

from __future__ import annotations

import collections.abc
import types
import typing
from typing import Any, Final

_WIDER: Final[dict[type, tuple[type, ...]]] = {float: (float, int), complex: (complex, float, int)}
"""Types whose annotation also accepts other types, as type checkers define it."""

AWAITED: Final = frozenset((collections.abc.Awaitable, collections.abc.Coroutine))
"""The result is what awaiting returns. Its type is in the arguments of the annotation."""


def outer_types(annotation: Any) -> tuple[type, ...] | None:
    """Return the classes of which a value must be an instance. None: any value is accepted.

    Only the outermost type is checked: `list[int]` accepts any list.
    """
    found: set[type] = set()
    pending = [annotation]
    while pending:
        hint = pending.pop()
        if isinstance(hint, typing.NewType):
            pending.append(hint.__supertype__)
            continue
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            pending.extend(arguments)
        elif origin is typing.Annotated:
            pending.append(arguments[0])
        elif origin is typing.Literal:
            found.update(map(type, arguments))
        elif origin in AWAITED:
            pending.append(arguments[-1] if arguments else Any)
        else:
            kinds = _classes(hint if origin is None else origin)
            if kinds is None:
                return None
            found.update(kinds)
    return tuple(sorted(found, key=lambda one: one.__qualname__))


def _classes(hint: Any) -> tuple[type, ...] | None:
    """Return the classes that a plain annotation accepts. None: it cannot be checked, or it accepts anything."""
    if hint is None:
        return (types.NoneType,)
    if typing.is_typeddict(hint):
        return (dict,)
    generic = getattr(hint, "__pydantic_generic_metadata__", None)
    if generic and generic["origin"]:  # an instance of Page may be returned as Page[int]
        hint = generic["origin"]
    if not isinstance(hint, type) or hint is object or hint in AWAITED:
        return None
    try:
        isinstance(None, hint)
    except TypeError:  # a protocol that cannot be checked
        return None
    return _WIDER.get(hint, (hint,))
