"""An in-memory audit trail."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditFilter, matches_filter, redacted
from onceward.protocol.erasure import ErasureFilter

MAX_ENTRIES = 10_000
"""Beyond this number the oldest entries are dropped, so that the audit trail does not grow without limit."""


class MemoryAudit:
    """The most recent entries. The caller must hold the store's mutex."""

    def __init__(self) -> None:
        self.entries: deque[AuditEntry] = deque(maxlen=MAX_ENTRIES)

    def add(self, entries: Iterable[AuditEntry]) -> None:
        self.entries.extend(entries)

    def find(self, wanted: AuditFilter, limit: int, now: int) -> list[AuditEntry]:
        return list(islice((entry for entry in reversed(self.entries) if matches_filter(entry, wanted, now)), limit))

    def redact(self, wanted: ErasureFilter, dry_run: bool) -> int:  # noqa: FBT001 (passed by the mutex)
        """Remove the fields that name a key from matching entries. Return how many match."""
        entries = [redacted(one) if one.key and wanted.selects(one.scope, one.key) else one for one in self.entries]
        changed = sum(new is not old for new, old in zip(entries, self.entries, strict=True))
        if not dry_run:
            self.entries = deque(entries, maxlen=MAX_ENTRIES)
        return changed

    def purge(self, now: int) -> None:
        kept = [entry for entry in self.entries if entry.at > now - AUDIT_RETENTION]
        if len(kept) < len(self.entries):
            self.entries = deque(kept, maxlen=MAX_ENTRIES)
