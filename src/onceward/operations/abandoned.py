"""Claims whose block nobody knows any more, so that nobody can end them: they lapse.

A weak reference tells, and not `__del__`: that would be called at the end of every block, also of one that was left as
it should be, and what a signal raises just then would be swallowed there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class DropWatcher(weakref.ref[Any]):
    """Of one claim. Two watches of the same block are two."""

    __slots__ = ("abandon",)
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    abandon: Callable[[], None]


_watches: set[DropWatcher] = set()  # known from here: the collector tells nobody who is garbage too

unwatch = _watches.discard
"""Its owner ends it. Nothing of ours is called when the block goes."""


def watch(block: object, abandon: Callable[[], None]) -> DropWatcher:
    """Call `abandon` when the block is gone. It may be called again, and must not know the block."""
    one = DropWatcher(block, lapse)
    one.abandon = abandon
    _watches.add(one)
    return one


def lapse(one: DropWatcher) -> None:
    """Python lets nothing out of here, and calls it once: what a signal raises must not stop it half-way."""
    try:
        one.abandon()
    except BaseException:
        one.abandon()
        raise
    finally:
        unwatch(one)
