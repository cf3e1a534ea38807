"""Stores whose glance is broken on purpose: they show what a claim would not replay, or not what it would."""

from __future__ import annotations

from msgspec.structs import replace

from onceward.protocol import transitions
from onceward.protocol.record import READER, Record, RecordState
from onceward.stores.memory.store import MemoryStore


class Glancing(MemoryStore):
    """A MemoryStore whose rule for a glance may be altered."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return transitions.replays(record, fingerprint, now)

    def lookup(self, id: bytes, fingerprint: bytes) -> Record | None:
        record = self._records.get(id)
        return record if record and self.shows(record, fingerprint, self._clock.now()) else None


class GlanceIgnoresTheWindow(Glancing):
    """Shows results whose window is over."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, valid_until=None), fingerprint, now)


class GlanceIgnoresThePayload(Glancing):
    """Shows the result of other work under the same key."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(record, b"", now)


class GlanceIgnoresNewerVersions(Glancing):
    """Shows what it does not understand."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, min_reader=READER), fingerprint, now)


class GlanceShowsWhatIsNotDone(Glancing):
    """Shows whatever is there."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, state=RecordState.COMPLETED), fingerprint, now)


class GlanceShowsFailures(Glancing):
    """Takes what failed for good for done."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, state=RecordState.COMPLETED) if record.final else record, fingerprint, now)


class GlanceNeverSlides(Glancing):
    """Answers until the window ends, so that no replay ever extends it."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return super().shows(replace(record, slide=0), fingerprint, now)


class GlanceShowsNothing(Glancing):
    """Has a glance, but never uses it."""

    def shows(self, record: Record, fingerprint: bytes, now: int) -> bool:
        return False


class GlanceLosesResults(Glancing):
    """Shows that it was done, but not what came of it."""

    def lookup(self, id: bytes, fingerprint: bytes) -> Record | None:
        record = super().lookup(id, fingerprint)
        return record and replace(record, result=None)


class GlanceWrites(Glancing):
    """Counts who looked."""

    def lookup(self, id: bytes, fingerprint: bytes) -> Record | None:
        record = self._records.get(id)
        if record is not None:
            self._records[id] = replace(record, note={**record.note, "looks": f"{record.note.get('looks', '')}."})
        return super().lookup(id, fingerprint)
