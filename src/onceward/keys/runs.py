"""Plain data, whose containers may be cut into runs: so much at a time that no single call into C takes long.

Plain is what MessagePack knows: None, bool, int, float, str, bytes, and lists and dicts of them. The weight of a value
is never more than the number of its packed bytes: one for every value and every key, and the length of every text.
All looks at it are calls into C over many values at once; a look at each by itself would take as long as encoding them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, TypeVar

from .pace import current_pause, go_on
from .weight import LIGHT_BYTES

LIGHT: Final = LIGHT_BYTES  # packed in about 0.1 ms and unpacked in 1 ms at the worst (16,384 empty dicts)
_DEEPEST: Final = 255  # levels of lists and dicts, then ormsgpack refuses

LEAVES: Final = frozenset((type(None), bool, int, float, str, bytes))
_CONTAINERS: Final = frozenset((list, dict))
PLAIN: Final = LEAVES | _CONTAINERS
_DICTS: Final = frozenset((dict,))
_values: Final = dict.values
_TEXTS: Final = frozenset((str, bytes, bytearray))

Sortable = TypeVar("Sortable", str, bytes)
Container = TypeVar("Container", list[Any], dict[str, Any])


def is_plain(value: Any) -> bool:
    """Whether there is nothing in it but plain data, by exact type. Keys are the packer's business."""
    level: Any = (value,)
    while True:
        kinds = set(map(type, level))
        if kinds.isdisjoint(_CONTAINERS):
            return kinds <= LEAVES
        if kinds == _DICTS:  # what records are: in one step, with nothing to tell apart
            level = list(chain.from_iterable(map(_values, level)))
            continue
        if not kinds <= PLAIN:
            return False
        dicts = [held.values() for held in level if type(held) is dict]
        lists = [held for held in level if type(held) is list]
        level = [*chain.from_iterable(dicts), *chain.from_iterable(lists)]


def weigh(value: Any, allowed: frozenset[type] = PLAIN, depth: int = 0) -> int:
    """The weight of a value, or anything over `LIGHT`. `TypeError`, as a packer's, for what is not allowed in it.

    `depth` is the number of containers around it.
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
            raise TypeError("nested too deep")
        dicts, lists = _only(dict, kinds, level), _only(list, kinds, level)
        weight += sum(map(len, dicts))
        if weight + sum(map(len, dicts)) + sum(map(len, lists)) > LIGHT:
            return LIGHT + 1
        weight += len("".join(chain.from_iterable(dicts)))  # raises for keys that are not text
        level = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]
    return weight


def _only(kind: type, kinds: set[type], level: list[Any]) -> list[Any]:
    """The values of one kind among some, of which the kinds are known."""
    if kind not in kinds:
        return []
    return level if len(kinds) == 1 else [value for value in level if type(value) is kind]


def runs(
    held: Container, allowed: frozenset[type], depth: int, *, ordered: bool = False
) -> Iterator[tuple[Container, bool]]:
    """A container cut into light runs, and whether they are: a run of a single member may not be.

    `depth` is the number of containers around its members. `ordered` gives the entries of a dict in the order of their
    keys. Where the cuts are depends on nothing but the value: each run is as long as the last lets us expect.
    A list is not copied, because copying a long list takes long. So another thread may change it between two runs.
    """
    copy: Any = held
    keys: list[str] | None = None
    if isinstance(held, dict):
        copy = held.copy()  # in one step: others may change it while we are at it
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
        size = max(1, len(run) * LIGHT * 3 // (weight * 4))  # a quarter less, so that it seldom has to be shortened
        pause()


def in_order(keys: Iterable[Sortable]) -> list[Sortable]:
    """Sorted as one sort would, which takes long for many: here, no step does."""
    found = list(keys)
    if len(found) <= _SORTED_AT_ONCE:
        found.sort()
        return found
    from heapq import merge  # here, because few have that many keys

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


_FIRST: Final = 64  # members of a run of which nothing is known
_SORTED_AT_ONCE: Final = 2_048
