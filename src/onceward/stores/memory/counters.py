"""What processes have counted, in memory: a dict of sheets."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.counters import Counted, Sheet, oldest_kept
from onceward.protocol.ports import Clock
from onceward.stores.mutex import Mutex

SWEEP = 2
"""Old sheets deleted by the way per sheet: twice what is added."""


class MemoryCounters:
    """Part of `MemoryStore`."""

    _clock: Clock
    _mutex: Mutex

    def __init__(self) -> None:
        super().__init__()
        self._sheets: dict[tuple[int, bytes], Sheet] = {}

    async def keep_counts(self, sheets: Sequence[Sheet], *, timeout: float) -> int:
        return self._mutex.run(self._keep_counts, sheets)

    async def counted(self, since: int, *, timeout: float) -> Counted:
        return self._mutex.run(self._counted, since)

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        return self._mutex.run(self._expire_counts, limit)

    # ── the same, alone ──

    def _keep_counts(self, sheets: Sequence[Sheet]) -> int:
        for sheet in sheets:
            place = (sheet.hour, sheet.process)
            before = self._sheets.get(place)
            if before is None or before.number < sheet.number:
                counts = {scope: dict(cell) for scope, cell in sheet.counts.items()}  # theirs goes on growing
                self._sheets[place] = Sheet(sheet.process, sheet.hour, sheet.number, counts)
        if sheets:
            self._expire_counts(SWEEP * len(sheets))
        return self._clock.now()

    def _counted(self, since: int) -> Counted:
        now = self._clock.now()
        first = max(since, oldest_kept(now))
        return Counted([sheet for (hour, _), sheet in sorted(self._sheets.items()) if hour >= first], now)

    def _expire_counts(self, limit: int) -> int:
        oldest = oldest_kept(self._clock.now())
        old = [place for place in self._sheets if place[0] < oldest][:limit]
        for place in old:
            del self._sheets[place]
        return len(old)
