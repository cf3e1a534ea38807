"""Recognise plain data: values that MessagePack stores and restores exactly, without extensions."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

LEAVES: Final = frozenset((type(None), bool, int, float, str, bytes))
_CONTAINERS: Final = frozenset((list, dict))
_PLAIN: Final = LEAVES | _CONTAINERS
_DICTS: Final = frozenset((dict,))


def is_plain(value: Any) -> bool:
    """Return whether the value contains only plain data, by exact type. Keys are not checked: the packer does that.

    Checks level by level, because a Python loop over the values would take as long as encoding them.
    """
    level: Any = (value,)
    while True:
        kinds = set(map(type, level))
        if kinds.isdisjoint(_CONTAINERS):
            return kinds <= LEAVES
        if kinds == _DICTS:  # the common case (lists of records), without checking each member's type
            level = list(chain.from_iterable(map(dict.values, level)))
            continue
        if not kinds <= _PLAIN:
            return False
        dicts = [held.values() for held in level if type(held) is dict]
        lists = [held for held in level if type(held) is list]
        level = [*chain.from_iterable(dicts), *chain.from_iterable(lists)]
