"""A memory store in the child of a fork: a copy that nobody else sees protects nothing, so it answers nothing."""

from __future__ import annotations

from typing import NoReturn

from onceward.errors import StoreBroken
from onceward.protocol.record import Record
from onceward.stores.mutex import Mutex


class ForkedEntries(dict[bytes, Record]):
    """The records in the child of a fork."""

    def get(self, *_: object) -> NoReturn:
        """Comes before any change of one."""
        ForkedStore().refuse()


class ForkedStore(Mutex):
    """In the child of a fork: runs nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.busy = True  # with something that will never end

    def refuse(self) -> NoReturn:
        raise StoreBroken(
            "this MemoryStore belongs to the process that made it; after a fork it would protect nothing",
            hint="open a store in the child, or use one that processes share (sqlite:///…)",
        )
