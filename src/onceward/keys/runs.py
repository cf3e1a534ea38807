"""Split large plain data into runs: slices that are small enough that no single call into C takes long.

Plain data are the types of MessagePack: None, bool, int, float, str, bytes, and lists and dicts of them. The weight of
a value is a lower bound of its packed size: one for every value and every key, plus the length of every text. It is
computed by calls into C over many values at once, because a Python loop over the values would take as long as encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, TypeVar

from .pace import current_pause, go_on
from .weight import LIGHT_BYTES

LIGHT: Final = LIGHT_BYTES  # packed in about 0.1 ms, and unpacked in at most 1 ms (16,384 empty dicts)
_DEEPEST: Final = 255  # levels of lists and dicts; ormsgpack refuses deeper nesting

LEAVES: Final = frozenset((type(None), bool, int, float, str, bytes))
_CONTAINERS: Final = frozenset((list, dict))
PLAIN: Final = LEAVES | _CONTAINERS
_DICTS: Final = frozenset((dict,))
_values: Final = dict.values
_TEXTS: Final = frozenset((str, bytes, bytearray))

Sortable = TypeVar("Sortable", str, bytes)
Container = TypeVar("Container", list[Any], dict[str, Any])


def is_plain(value: Any) -> bool:
    """Return whether the value contains only plain data, by exact type. Keys are not checked: the packer does that."""
    level: Any = (value,)
    while True:
        kinds = set(map(type, level))
        if kinds.isdisjoint(_CONTAINERS):
            return kinds <= LEAVES
        if kinds == _DICTS:  # the common case (lists of records), without checking each member's type
            level = list(chain.from_iterable(map(_values, level)))
            continue
        if not kinds <= PLAIN:
            return False
        dicts = [held.values() for held in level if type(held) is dict]
        lists = [held for held in level if type(held) is list]
        level = [*chain.from_iterable(dicts), *chain.from_iterable(lists)]


def weigh(value: Any, allowed: frozenset[type] = PLAIN, depth: int = 0) -> int:
    """Return the weight of a value, or a number above `LIGHT` if it is larger.

    Raise `TypeError`, as a packer does, if it contains another type than the allowed ones. `depth` is the number of
    containers around it.
    """
    weight, level = 0, [value]
    while level:
        weight += len(level)
        kinds = set(map(type, level))
        if not kinds <= allowed:
            raise TypeError(kinds - allowed)
        for kind in kinds & _TEXTS:
            weight += sum(map(len, _only(kind, kinds, level)))
        if weight > LIGHT or kinds.isdisjoint(_CONTAINERS):
            break
        depth += 1
        if depth > _DEEPEST:
            raise TypeError("nested too deeply")
        dicts, lists = _only(dict, kinds, level), _only(list, kinds, level)
        weight += sum(map(len, dicts))
        if weight + sum(map(len, dicts)) + sum(map(len, lists)) > LIGHT:
            return LIGHT + 1
        weight += len("".join(chain.from_iterable(dicts)))  # raises for keys that are not text
        level = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]
    return weight


def _only(kind: type, kinds: set[type], level: list[Any]) -> list[Any]:
    """Return the values of this type. `kinds` are the types that occur in `level`."""
    if kind not in kinds:
        return []
    return level if len(kinds) == 1 else [value for value in level if type(value) is kind]


def runs(
    held: Container, allowed: frozenset[type], depth: int, *, ordered: bool = False
) -> Iterator[tuple[Container, bool]]:
    """Yield the container in light runs, each with whether it is light: a run of one large member is not.

    `depth` is the number of containers around its members. With `ordered`, the entries of a dict are sorted by key.
    The size of a run is estimated from the weight of the previous one, so the runs depend only on the value. A list is
    not copied, because copying a long list takes long. So another thread may change it between two runs.
    """
    copy: Any = held
    keys: list[str] | None = None
    if isinstance(held, dict):
        copy = held.copy()  # in one step, because other threads may change it
        keys = list(copy)
        if ordered:
            if set(map(type, keys)) != {str}:
                raise TypeError("a key that is not text")
            keys = in_order(keys)
    pause = current_pause() or go_on
    start, size, members = 0, _FIRST, len(copy)
    while start < min(members, len(copy)):
        end = min(start + size, members)
        run: Any = copy[start:end] if keys is None else {key: copy[key] for key in keys[start:end]}
        weight = weigh(run, allowed, depth - 1)
        if weight > LIGHT and len(run) > 1:
            size = len(run) // 2
            continue
        yield run, weight <= LIGHT
        start += len(run)
        size = max(1, len(run) * LIGHT * 3 // (weight * 4))  # a quarter less, so that it seldom has to be halved
        pause()


def in_order(keys: Iterable[Sortable]) -> list[Sortable]:
    """Return the keys sorted. Many keys are sorted in parts and merged, so that no single step takes long."""
    found = list(keys)
    if len(found) <= _SORTED_AT_ONCE:
        found.sort()
        return found
    from heapq import merge  # imported here: few dicts have that many keys

    pause = current_pause() or go_on
    heaps = []
    for start in range(0, len(found), _SORTED_AT_ONCE):
        heaps.append(sorted(found[start : start + _SORTED_AT_ONCE]))
        pause()
    merged = merge(*heaps)
    found.clear()
    while some := list(islice(merged, _SORTED_AT_ONCE)):
        found += some
        pause()
    return found


_FIRST: Final = 64  # members of the first run, before any weight is known
_SORTED_AT_ONCE: Final = 2_048
