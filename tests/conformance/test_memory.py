from __future__ import annotations

from pathlib import Path

from onceward.protocol.ports import Clock
from onceward.stores.memory.store import MemoryStore
from tests.conformance.in_memory import InMemory


class TestMemoryStore(InMemory): ...


class TestMemoryStoreOnItsOwnClock(InMemory):
    """As a store on a server has to be tested: with short real leases."""

    fake_clock = False

    def open(self, place: Path, clock: Clock) -> MemoryStore:
        store = self.stores.get(place)
        if store is None:
            store = self.stores[place] = MemoryStore()
        return store
