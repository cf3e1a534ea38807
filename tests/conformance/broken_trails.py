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
    """Makes the change, and leaves no entry."""

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        return await super().settle(settlements, **{**how, "signed": None})


class ForgetsToSignPurges(MemoryStore):
    """Nobody knows who purged."""

    async def purge(self, limit: int, **how: Any) -> int:
        return await super().purge(limit, **{**how, "signed": None})


class SignsEveryChange(MemoryStore):
    """Fills the trail with what programs do."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        return await super().forget(ids, **{**how, "signed": how.get("signed") or AuditSignature("forget", "somebody")})


class SignsRefusals(MemoryStore):
    """Notes what was asked for, whether it happened or not."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        answers = await super().forget(ids, **{**how, "signed": None})
        if how.get("signed"):
            self._trail.add(audit_entries(how["signed"], _before(self._records), answers))
        return answers


class SignsAtItsOwnTime(MemoryStore):
    """Dates the entry by another clock than the record."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        answers = await super().forget(ids, **how)
        self._trail._entries.extend([replace(self._trail._entries.pop(), at=1)] if how.get("signed") else [])
        return answers


class CutsReasons(MemoryStore):
    """Keeps reasons as C strings."""

    async def audit(self, wanted: AuditFilter, **how: Any) -> list[AuditEntry]:
        return [replace(one, why=one.why.partition("\0")[0]) for one in await super().audit(wanted, **how)]


class OldestFirst(MemoryStore):
    """Shows the beginning of the trail, whatever happened since."""

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return (await super().audit(wanted, limit=10**9, timeout=timeout))[::-1][:limit]


class IgnoresTheAgeOfEntries(MemoryStore):
    """Does not look at `within`."""

    async def audit(self, wanted: AuditFilter, **how: Any) -> list[AuditEntry]:
        return await super().audit(replace(wanted, within=None), **how)


class KeepsTheTrailForEver(MemoryStore):
    """Purges records only."""

    async def purge(self, limit: int, **how: Any) -> int:
        entries = list(self._trail._entries)
        gone = await super().purge(limit, **how)
        self._trail._entries.clear()
        self._trail.add(entries)
        return gone


class PurgesTheTrailWithTheRecord(MemoryStore):
    """Forgets what was done to a record that is gone."""

    async def purge(self, limit: int, **how: Any) -> int:
        gone = await super().purge(limit, **how)
        self._trail._entries.clear()
        return gone


class CountsPurgesOneByOne(MemoryStore):
    """An entry a record, as if each had been chosen by hand."""

    async def purge(self, limit: int, **how: Any) -> int:
        gone = await super().purge(limit, **{**how, "signed": None})
        if how.get("signed"):
            self._trail.add([purge_entry(how["signed"], 1, self._clock.now())] * gone)
        return gone


class SignsThenTries(Hesitant):
    """Writes the entry in a step of its own, before it is known whether the change will hold."""

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        if how.get("signed") is None:
            return await super().settle(settlements, **how)
        now = self._clock.now()
        steps = [transitions.settle(self._records.get(one.id), one, now) for one in settlements]
        answers = [Answer(verdict, record, now) for record, verdict in steps]
        self._trail.add(audit_entries(how["signed"], self._records.get, answers))
        await self.hesitate()
        return await super().settle(settlements, **{**how, "signed": None})


class ForgetsUnseen(MemoryStore):
    """Forgets what is there now, whatever was shown to the person."""

    async def forget(self, ids: Sequence[bytes], **how: Any) -> list[Answer]:
        return await super().forget(ids, **{**how, "seen": None})


class ResolvesUnseen(MemoryStore):
    """Compares the token alone, so that what a late owner completed is undone."""

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        for one in settlements:
            record = self._records.get(one.id)
            if record is not None and record.state is RecordState.COMPLETED and getattr(one, "force", False):
                self._records[one.id] = replace(record, state=RecordState.PENDING)
        return await super().settle(settlements, **how)


def _before(records: Mapping[bytes, Record]) -> Any:
    """As if each had been another record before."""
    return lambda id: replace(records[id]) if id in records else None
