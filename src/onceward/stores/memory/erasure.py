"""Erase everything that names a key from memory."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.audit import AuditSignature, purge_entry
from onceward.protocol.capabilities import Erasure
from onceward.protocol.erasure import ErasureFilter, FoundEntity
from onceward.protocol.latest import EntityState
from onceward.protocol.ports import Clock
from onceward.protocol.record import Record
from onceward.stores.mutex import Mutex

from .audit import MemoryAudit
from .records import FREE, MemoryRecords


class MemoryErasure(MemoryRecords):
    """The erasure of `MemoryStore`."""

    _clock: Clock
    _mutex: Mutex
    _trail: MemoryAudit
    _entity_states: dict[bytes, EntityState]

    @property
    def erasure(self) -> Erasure:
        return self

    async def delete_free(self, records: Sequence[Record], *, timeout: float) -> int:
        found = (self._records.get(one.id) for one in records)
        return sum(self._delete(one) for one in found if one is not None and one.state is FREE)

    async def find_entities(self, wanted: ErasureFilter, *, timeout: float) -> list[FoundEntity]:
        states = tuple(self._entity_states.values())
        return [FoundEntity(one.id, one.scope, one.entity) for one in states if wanted.selects(one.scope, one.entity)]

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        return sum(self._entity_states.pop(one.id, None) is not None for one in found)

    async def redact_audit(self, wanted: ErasureFilter, *, timeout: float, dry_run: bool = False) -> int:
        return self._mutex.run(self._trail.redact, wanted, dry_run)

    async def add_audit(self, signed: AuditSignature, count: int, *, timeout: float) -> None:
        self._mutex.run(self._trail.add, [purge_entry(signed, count, self._clock.now())])

    async def discard_deleted(self, *, timeout: float) -> str:
        return ""
