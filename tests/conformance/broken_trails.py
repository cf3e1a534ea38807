"""Stores whose audit trail is broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from onceward.protocol import transitions
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature, audit_entries, purge_entry
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, AnySettlement
from onceward.stores.memory.store import MemoryStore
from tests.conformance.broken_ways import Hesitant


class ForgetsToSign(MemoryStore):
    """Makes the change, and writes no entry."""

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        return await super().settle(settlements, **{**how, "signed": None})


class ForgetsToSignPurges(MemoryStore):
    """Purges without an entry."""

    async def purge(self, limit: int, **how: Any) -> int:
        return await super().purge(limit, **{**how, "signed": None})


class SignsEveryChange(MemoryStore):
    """Also writes entries for unsigned changes."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        return await super().forget(ids, **{**how, "signed": how.get("signed") or AuditSignature("forget", "unknown")})


class SignsRefusals(MemoryStore):
    """Writes an entry for every request, whether it took effect or not."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        answers = await super().forget(ids, **{**how, "signed": None})
        if how.get("signed"):
            self._trail.add(audit_entries(how["signed"], _before(self._records), answers))
        return answers


class SignsAtItsOwnTime(MemoryStore):
    """Dates the entry by another clock than the record."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        answers = await super().forget(ids, **how)
        self._trail.entries.extend([replace(self._trail.entries.pop(), at=1)] if how.get("signed") else [])
        return answers


class CutsReasons(MemoryStore):
    """Stores reasons as C strings."""

    async def audit(self, wanted: AuditFilter, **how: Any) -> list[AuditEntry]:
        return [replace(one, why=one.why.partition("\0")[0]) for one in await super().audit(wanted, **how)]


class OldestFirst(MemoryStore):
    """Returns the oldest entries instead of the latest."""

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return (await super().audit(wanted, limit=10**9, timeout=timeout))[::-1][:limit]


class IgnoresTheAgeOfEntries(MemoryStore):
    """Ignores `within`."""

    async def audit(self, wanted: AuditFilter, **how: Any) -> list[AuditEntry]:
        return await super().audit(replace(wanted, within=None), **how)


class NeverExpiresTheTrail(MemoryStore):
    """Purges records only."""

    async def purge(self, limit: int, **how: Any) -> int:
        entries = list(self._trail.entries)
        gone = await super().purge(limit, **how)
        self._trail.entries.clear()
        self._trail.add(entries)
        return gone


class PurgesTheTrailWithTheRecord(MemoryStore):
    """Deletes the entries of a purged record."""

    async def purge(self, limit: int, **how: Any) -> int:
        gone = await super().purge(limit, **how)
        self._trail.entries.clear()
        return gone


class CountsPurgesOneByOne(MemoryStore):
    """Writes one entry for each purged record."""

    async def purge(self, limit: int, **how: Any) -> int:
        gone = await super().purge(limit, **{**how, "signed": None})
        if how.get("signed"):
            self._trail.add([purge_entry(how["signed"], 1, self._clock.now())] * gone)
        return gone


class SignsThenTries(Hesitant):
    """Writes the entry in a separate step, before the change has succeeded."""

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        if how.get("signed") is None:
            return await super().settle(settlements, **how)
        now = self._clock.now()
        steps = [transitions.settle(self._records.get(one.id), one, now) for one in settlements]
        answers = [Answer(verdict, record, now) for record, verdict in steps]
        self._trail.add(audit_entries(how["signed"], self._records.get, answers))
        await self.hesitate()
        return await super().settle(settlements, **{**how, "signed": None})


class ForgetIgnoresExpectedState(MemoryStore):
    """Forgets the record even if it differs from the one that the operator saw."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        return await super().forget(ids, **{**how, "seen": None})


class ResolveIgnoresExpectedState(MemoryStore):
    """Compares only the token, so that it undoes the completion of a late owner."""

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        for one in settlements:
            record = self._records.get(one.id)
            if record is not None and record.state is RecordState.COMPLETED and getattr(one, "force", False):
                self._records[one.id] = replace(record, state=RecordState.PENDING)
        return await super().settle(settlements, **how)


def _before(records: Mapping[bytes, Record]) -> Any:
    """Return each record as a copy, so that it counts as changed."""
    return lambda id: replace(records[id]) if id in records else None
