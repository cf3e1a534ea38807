"""Merge policies: which of several values of a field the person gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import Struct


class MergePolicy(Struct, frozen=True):
    """`first`, `newest` and `longest` choose one value, `union` keeps all. `sources` take precedence, in this order."""

    choose: Literal["first", "newest", "longest", "union"] = "newest"
    sources: tuple[str, ...] = ()


FIRST: Final = MergePolicy("first")
NEWEST: Final = MergePolicy("newest")
LONGEST: Final = MergePolicy("longest")
UNION: Final = MergePolicy("union")


def prefer(*sources: str) -> MergePolicy:
    """Return a policy that takes the newest value of the first of these `sources` that has one.

    If none of them has a value, it takes the newest one of any other source.
    """
    return MergePolicy("newest", sources)


class FieldValue(Struct, frozen=True):
    """A value, its source, and its position in time (`order`)."""

    value: Any
    source: str
    order: tuple[int, int]


def choose_value(policy: MergePolicy, values: Sequence[FieldValue]) -> Any:
    """Return the value of the merged field. `values` is not empty, and is sorted by `order`."""
    if policy.choose == "union":
        found: list[Any] = []
        for one in values:
            found += [value for value in _all(one.value) if value not in found]
        return found
    if policy.sources:
        values = _preferred(policy.sources, values)
    if policy.choose == "first":
        return values[0].value
    if policy.choose == "longest":
        return max(values, key=lambda one: len(str(one.value))).value
    return values[-1].value


def _all(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _preferred(sources: Sequence[str], values: Sequence[FieldValue]) -> Sequence[FieldValue]:
    for source in sources:
        found = [one for one in values if one.source == source]
        if found:
            return found
    return values


def is_missing(value: Any) -> bool:
    """Return whether a value is empty, so that it neither supports nor contradicts a match."""
    if isinstance(value, str):
        return not value or value.isspace()
    if isinstance(value, list | tuple):
        return all(map(is_missing, value))
    return value is None or value == {}
