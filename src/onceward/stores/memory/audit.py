"""An audit trail in memory, for stores that keep nothing elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from onceward.protocol.audit import KEEP_AUDIT, AuditEntry, AuditFilter, is_wanted

LONGEST = 10_000
"""Entries: beyond it the oldest go, because a process must not grow by being looked after."""


class MemoryAudit:
    """The newest entries. The caller locks."""

    def __init__(self) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=LONGEST)

    def add(self, entries: Iterable[AuditEntry]) -> None:
        self._entries.extend(entries)

    def find(self, wanted: AuditFilter, limit: int, now: int) -> list[AuditEntry]:
        return list(islice((entry for entry in reversed(self._entries) if is_wanted(entry, wanted, now)), limit))

    def purge(self, now: int) -> None:
        kept = [entry for entry in self._entries if entry.at > now - KEEP_AUDIT]
        if len(kept) < len(self._entries):
            self._entries = deque(kept, maxlen=LONGEST)
