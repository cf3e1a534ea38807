"""Erase everything that names a key from all collections. Each document that is read or deleted is billed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from onceward.protocol.audit import AuditEntry, AuditSignature, purge_entry
from onceward.protocol.erasure import ErasureFilter, FoundEntity
from onceward.protocol.record import Record, RecordState

from . import audit as trail
from . import errors as faults
from . import values
from .cache import Now
from .calls import NAME, FirestoreCalls, FoundDocument, order_by, start_after
from .documents import Records
from .errors import FirestoreError
from .latest import FirestoreLatest
from .latest_documents import LatestDocuments
from .names import name_of
from .values import Value

T = TypeVar("T")

PAGE: Final = 300
"""Documents per query."""


class OpenParts(Protocol):
    """The parts of an open store that an erasure needs."""

    @property
    def calls(self) -> FirestoreCalls: ...
    @property
    def latest(self) -> FirestoreLatest: ...


class FirestoreErasure:
    """The erasure of `FirestoreStore`."""

    def __init__(self, records: Records, opened: Callable[[], OpenParts], clock: Now) -> None:
        self._records = records
        self._opened = opened  # called for each operation: the store may be opened later
        self._clock = clock

    @property
    def _calls(self) -> FirestoreCalls:
        return self._opened().calls

    @property
    def _states(self) -> LatestDocuments:
        return self._opened().latest.states

    async def delete_free(self, records: Sequence[Record], *, timeout: float) -> int:
        return await self._translated(self._delete_free(records, time.monotonic() + timeout))

    async def find_entities(self, wanted: ErasureFilter, *, timeout: float) -> list[FoundEntity]:
        found = await self._translated(self._find_entities(wanted.selects, time.monotonic() + timeout))
        return [entity for entity, _ in found]

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        return await self._translated(self._delete_entities(found, time.monotonic() + timeout))

    async def redact_audit(self, wanted: ErasureFilter, *, timeout: float) -> int:
        return await self._translated(self._redact_audit(wanted, time.monotonic() + timeout))

    async def add_audit(self, signed: AuditSignature, count: int, *, timeout: float) -> None:
        await self._translated(self._add_audit(signed, count, time.monotonic() + timeout))

    async def _translated(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except FirestoreError as error:
            raise faults.error_for(error, self._calls.name) from error

    async def _delete_free(self, records: Sequence[Record], deadline: float) -> int:
        collection = self._calls.address.collection
        found, _ = await self._calls.get(
            [(collection, name_of(one.id, one.scope, one.key)) for one in records], deadline
        )
        free = [
            one for one in found.values() if values.plain(_at(one, self._records.paths["state"])) == RecordState.FREE
        ]
        return await self._delete(collection, free, deadline)

    async def _delete_entities(self, found: Sequence[FoundEntity], deadline: float) -> int:
        ids = {one.id for one in found}
        chosen = [one for entity, one in await self._find_entities(lambda *_: True, deadline) if entity.id in ids]
        return await self._delete(self._states.states_in, chosen, deadline)

    async def _redact_audit(self, wanted: ErasureFilter, deadline: float) -> int:
        writes = []
        async for one in self._documents(self._calls.address.audit_in, deadline):
            entry: AuditEntry = trail.entry_of(one.fields)
            if entry.key and wanted.selects(entry.scope, entry.key):
                writes.append(trail.redaction(self._calls, one))
        results = await self._calls.write_each(writes, deadline) if writes else []
        return sum(code == "OK" for code, _ in results)

    async def _add_audit(self, signed: AuditSignature, count: int, deadline: float) -> None:
        now = self._clock()
        if now is None:
            _, now = await self._calls.get([(self._calls.address.collection, "clock")], deadline)
        await self._calls.commit([trail.entry_write(self._calls, purge_entry(signed, count, now))], deadline)

    async def _find_entities(
        self, selects: Callable[[str, str], bool], deadline: float
    ) -> list[tuple[FoundEntity, FoundDocument]]:
        found = []
        async for one in self._documents(self._states.states_in, deadline):
            state = self._states.state(one.fields)
            if selects(state.scope, state.entity):
                found.append((FoundEntity(state.id, state.scope, state.entity), one))
        return found

    async def _documents(self, collection: str, deadline: float) -> AsyncIterator[FoundDocument]:
        more: dict[str, Any] = {}
        while True:
            page, _ = await self._calls.query(collection, deadline, limit=PAGE, order_by=[order_by((NAME,))], **more)
            for one in page:
                yield one
            if len(page) < PAGE:
                return
            last = Value(reference_value=self._calls.path(collection, page[-1].name))
            more = {"start_at": start_after(last)}

    async def _delete(self, collection: str, chosen: Sequence[FoundDocument], deadline: float) -> int:
        batch = [self._calls.build_delete(collection, one.name, one.version) for one in chosen]
        results = await self._calls.write_each(batch, deadline) if batch else []
        return sum(code == "OK" for code, _ in results)


def _at(one: FoundDocument, path: tuple[str, ...]) -> Any:
    fields: Any = one.fields
    for step in path[:-1]:
        fields = fields[step].map_value.fields
    return fields[path[-1]]
