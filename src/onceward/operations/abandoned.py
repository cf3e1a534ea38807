"""Abandon claims whose block was garbage-collected: no code is left that could settle them, so the lease must expire.

A weak reference notices that, not `__del__`. Python would call `__del__` after every block, even one that was left
normally, and would swallow an exception that a signal handler raises in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class DropWatcher(weakref.ref[Any]):
    """Watches the block of one claim. Two watchers of the same block are not equal, unlike plain weak references."""

    __slots__ = ("abandon",)
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    abandon: Callable[[], None]


_watchers: set[DropWatcher] = set()  # the garbage collector calls only weak references that are themselves alive

unwatch = _watchers.discard
"""Stop watching: the owner has settled the claim, or is about to."""


def watch(block: object, abandon: Callable[[], None]) -> DropWatcher:
    """Call `abandon` when the block is garbage-collected. It may be called twice and must not refer to the block."""
    watcher = DropWatcher(block, _abandon)
    watcher.abandon = abandon
    _watchers.add(watcher)
    return watcher


def _abandon(watcher: DropWatcher) -> None:
    """Abandon the claim. Python calls this once and ignores exceptions, so retry if a signal handler raises."""
    try:
        watcher.abandon()
    except BaseException:
        watcher.abandon()
        raise
    finally:
        unwatch(watcher)
