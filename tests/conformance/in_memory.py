"""How the kit opens and inspects a MemoryStore: the sound one, and those that are broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from msgspec.structs import asdict

from onceward.protocol.ports import Clock
from onceward.stores.memory.store import MemoryStore
from onceward.testing.conformance import StoreConformance
from tests.raw_memory import overwrite, records_of


class InMemory(StoreConformance):
    """Two stores on one directory are the same object: that is what sharing means in memory."""

    shared = False
    durable = False
    kind: ClassVar[type[MemoryStore]] = MemoryStore
    stores: ClassVar[WeakValueDictionary[Path, MemoryStore]] = WeakValueDictionary()

    def open(self, directory: Path, clock: Clock) -> MemoryStore:
        store = self.stores.get(directory)
        if store is None:
            store = self.stores[directory] = self.kind(clock=clock)
        return store

    def raw(self, directory: Path, id: bytes) -> Mapping[str, object] | None:
        record = records_of(self.stores[directory]).get(id)
        return None if record is None else asdict(record)

    def writes(self, directory: Path) -> int:
        return hash(tuple(id(record) for record in records_of(self.stores[directory]).values()))

    def overwrite(self, directory: Path, id: bytes, **fields: Any) -> None:
        overwrite(self.stores[directory], id, **fields)
