from __future__ import annotations

from pathlib import Path

from onceward.protocol.ports import Clock
from onceward.stores.memory.store import MemoryStore
from tests.conformance.in_memory import InMemory


class TestMemoryStore(InMemory): ...


class TestMemoryStoreOnItsOwnClock(InMemory):
    """With short leases in real time, as a store on a server is tested."""

    fake_clock = False

    def open(self, directory: Path, clock: Clock) -> MemoryStore:
        store = self.stores.get(directory)
        if store is None:
            store = self.stores[directory] = MemoryStore()
        return store
