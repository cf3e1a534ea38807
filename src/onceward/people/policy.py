"""Merge policies: which of several values of a field is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import Struct


class MergePolicy(Struct, frozen=True):
    """`first`, `newest` and `longest` choose one value, `union` keeps all; `sources` come first, in this order."""

    choose: Literal["first", "newest", "longest", "union"] = "newest"
    sources: tuple[str, ...] = ()


FIRST: Final = MergePolicy("first")
NEWEST: Final = MergePolicy("newest")
LONGEST: Final = MergePolicy("longest")
UNION: Final = MergePolicy("union")


def prefer(*sources: str) -> MergePolicy:
    """The newest value of the first of these sources that has any; of the others only if none of these has."""
    return MergePolicy("newest", sources)


class Said(Struct, frozen=True):
    """A value, who said it, and when: `order` grows with time."""

    value: Any
    source: str
    order: tuple[int, int]


def chosen(policy: MergePolicy, said: Sequence[Said]) -> Any:
    """What the merged field shows; `said` is not empty, and in order."""
    if policy.choose == "union":
        found: list[Any] = []
        for one in said:
            found += [value for value in _all(one.value) if value not in found]
        return found
    if policy.sources:
        said = _preferred(policy.sources, said)
    if policy.choose == "first":
        return said[0].value
    if policy.choose == "longest":
        return max(said, key=lambda one: len(str(one.value))).value
    return said[-1].value


def _all(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _preferred(sources: Sequence[str], said: Sequence[Said]) -> Sequence[Said]:
    for source in sources:
        theirs = [one for one in said if one.source == source]
        if theirs:
            return theirs
    return said


def is_missing(value: Any) -> bool:
    """No evidence for or against anything."""
    if isinstance(value, str):
        return not value or value.isspace()
    if isinstance(value, list | tuple):
        return all(map(is_missing, value))
    return value is None or value == {}
