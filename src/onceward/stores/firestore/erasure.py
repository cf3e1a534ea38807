"""Erase everything that names a key from all collections. Each document that is read or deleted is billed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from onceward.errors import RecordBroken
from onceward.protocol.audit import AuditSignature, purge_entry
from onceward.protocol.capabilities import Erasure
from onceward.protocol.erasure import ErasureFilter, FoundEntity
from onceward.protocol.record import Record, RecordState

from . import audit as trail
from .calls import OK, PAGE, FoundDocument
from .names import name_of
from .opened import OpenedStore
from .values import plain_at


class FirestoreErasure(OpenedStore):
    """The erasure of `FirestoreStore`."""

    @property
    def erasure(self) -> Erasure:
        return self

    async def delete_free(self, records: Sequence[Record], *, timeout: float) -> int:
        with self._call(timeout) as deadline:
            collection, state = self._calls.address.collection, self._records.paths["state"]
            names = [(collection, name_of(one.id, one.scope, one.key)) for one in records]
            found, _ = await self._calls.get(names, deadline)
            free = [one for one in found.values() if plain_at(one.fields, state) == RecordState.FREE]
            return await self._calls.delete_each(collection, free, deadline)

    async def find_entities(self, wanted: ErasureFilter, *, timeout: float) -> list[FoundEntity]:
        with self._call(timeout) as deadline:
            return [entity for entity, _ in await self._find_entities(wanted.selects, deadline)]

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        ids = {one.id for one in found}
        with self._call(timeout) as deadline:
            chosen = [one for entity, one in await self._find_entities(lambda *_: True, deadline) if entity.id in ids]
            return await self._calls.delete_each(self._states.states_in, chosen, deadline)

    async def redact_audit(self, wanted: ErasureFilter, *, timeout: float, dry_run: bool = False) -> int:
        with self._call(timeout) as deadline:
            entries = self._documents(self._calls.address.audit_in, deadline)
            writes = [trail.redaction(self._calls, one) async for one in entries if _is_redacted(one, wanted)]
            if dry_run:
                return len(writes)
            results = await self._calls.write_each(writes, deadline) if writes else []
            return sum(code == OK for code, _ in results)

    async def add_audit(self, signed: AuditSignature, count: int, *, timeout: float) -> None:
        with self._call(timeout) as deadline:
            entry = purge_entry(signed, count, await self._calls.now(deadline))
            await self._calls.commit([trail.entry_write(self._calls, entry)], deadline)

    async def discard_deleted(self, *, timeout: float) -> str:  # noqa: ARG002 (there is nothing to do)
        return ""

    async def _find_entities(
        self, selects: Callable[[str, str], bool], deadline: float
    ) -> list[tuple[FoundEntity, FoundDocument]]:
        found = []
        async for one in self._documents(self._states.states_in, deadline):
            try:
                state = self._states.state(one.fields)
            except RecordBroken:
                found.append((FoundEntity(self._states.id_in(one), "", "", readable=False), one))
                continue
            if selects(state.scope, state.entity):
                found.append((FoundEntity(state.id, state.scope, state.entity), one))
        return found

    async def _documents(self, collection: str, deadline: float) -> AsyncIterator[FoundDocument]:
        last = None
        while True:
            page, _ = await self._calls.page(collection, deadline, after=last, limit=PAGE)
            for one in page:
                yield one
            if len(page) < PAGE:
                return
            last = page[-1]


def _is_redacted(one: FoundDocument, wanted: ErasureFilter) -> bool:
    """Return whether the erasure removes the key of an audit entry. Invalid content may name any key."""
    try:
        entry = trail.entry_of(one.fields)
    except RecordBroken:
        return True
    return bool(entry.key) and wanted.selects(entry.scope, entry.key)
