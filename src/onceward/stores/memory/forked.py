"""Disable a memory store in a forked child: its private copy of the records would protect nothing."""

from __future__ import annotations

from typing import NoReturn

from onceward.errors import StoreBroken
from onceward.protocol.record import Record
from onceward.stores.mutex import Mutex


class ForkedEntries(dict[bytes, Record]):
    """Replaces the records in a forked child: every read raises."""

    def get(self, *_: object) -> NoReturn:
        """Raise StoreBroken. Every change of a record reads it first."""
        ForkedStore().refuse()


class ForkedStore(Mutex):
    """Replaces the mutex in a forked child: every call raises."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.busy = True  # for good, so that `run` always calls `refuse`

    def refuse(self) -> NoReturn:
        raise StoreBroken(
            "this MemoryStore belongs to the process that created it; after a fork it would protect nothing",
            hint="open a store in the child, or use one that processes can share (sqlite:///…)",
        )
