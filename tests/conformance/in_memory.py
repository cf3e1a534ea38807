"""How the kit opens and inspects a MemoryStore: the sound one, and those that are broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from msgspec.structs import asdict, replace

from onceward.protocol.ports import Clock
from onceward.stores.memory.store import MemoryStore
from onceward.testing.conformance import StoreConformance


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
        record = self.stores[directory]._records.get(id)
        return None if record is None else asdict(record)

    def writes(self, directory: Path) -> int:
        return hash(tuple(id(record) for record in self.stores[directory]._records.values()))

    def overwrite(self, directory: Path, id: bytes, **fields: Any) -> None:
        records = self.stores[directory]._records
        records[id] = replace(records[id], **fields)
