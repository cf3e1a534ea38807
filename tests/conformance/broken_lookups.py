"""Stores whose lookup is broken on purpose: it returns what a claim would not replay, or not what it would."""

from __future__ import annotations

from msgspec.structs import replace

from onceward.protocol import transitions
from onceward.protocol.record import READER, Record, RecordState
from onceward.stores.memory.store import MemoryStore


class AlteredLookup(MemoryStore):
    """A MemoryStore whose rule for a lookup may be altered."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return transitions.replays(record, fingerprint, now)

    def lookup_completed(self, id: bytes, fingerprint: bytes, /) -> Record | None:
        record = self._records.get(id)
        return record if record and self.shows(record, fingerprint, self._clock.now()) else None


class LookupIgnoresTheWindow(AlteredLookup):
    """Returns results whose window has ended."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, valid_until=None), fingerprint, now)


class LookupIgnoresThePayload(AlteredLookup):
    """Returns the result of another payload under the same key."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(record, b"", now)


class LookupIgnoresNewerVersions(AlteredLookup):
    """Returns records of a version that it cannot read."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, min_reader=READER), fingerprint, now)


class LookupReturnsUnfinishedRecords(AlteredLookup):
    """Returns the record in any state."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, state=RecordState.COMPLETED), fingerprint, now)


class LookupReturnsFailures(AlteredLookup):
    """Treats a final failure as completed."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, state=RecordState.COMPLETED) if record.final else record, fingerprint, now)


class LookupNeverSlides(AlteredLookup):
    """Returns the record until the window ends, so that no replay ever extends it."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, slide=0), fingerprint, now)


class LookupReturnsNothing(AlteredLookup):
    """Has a lookup that never returns anything."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return False


class LookupLosesResults(AlteredLookup):
    """Returns the completed record without its result."""

    def lookup_completed(self, id: bytes, fingerprint: bytes, /) -> Record | None:
        record = super().lookup_completed(id, fingerprint)
        return record and replace(record, result=None)


class LookupWrites(AlteredLookup):
    """Counts the lookups in the record."""

    def lookup_completed(self, id: bytes, fingerprint: bytes, /) -> Record | None:
        record = self._records.get(id)
        if record is not None:
            self._records[id] = replace(record, note={**record.note, "looks": f"{record.note.get('looks', '')}."})
        return super().lookup_completed(id, fingerprint)
