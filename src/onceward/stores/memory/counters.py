"""Counters in memory: a dict of rows, one per process and hour."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.counters import CounterRow, StoredCounts, oldest_kept_hour
from onceward.protocol.ports import Clock
from onceward.stores.mutex import Mutex

SWEEP_PER_ROW = 2
"""Expired rows deleted for each row that is written. Twice the number added, so the dict does not only grow."""


class MemoryCounters:
    """The counters of `MemoryStore`."""

    _clock: Clock
    _mutex: Mutex

    def __init__(self) -> None:
        super().__init__()
        self._counter_rows: dict[tuple[int, bytes], CounterRow] = {}

    async def save_counts(self, counter_rows: Sequence[CounterRow], *, timeout: float) -> int:
        return self._mutex.run(self._keep_counts, counter_rows)

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        return self._mutex.run(self._counted, since)

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        return self._mutex.run(self._expire_counts, limit)

    # ── called with the mutex held ──

    def _keep_counts(self, counter_rows: Sequence[CounterRow]) -> int:
        for counter_row in counter_rows:
            slot = (counter_row.hour, counter_row.process)
            before = self._counter_rows.get(slot)
            if before is None or before.number < counter_row.number:
                counts = {
                    scope: dict(cell) for scope, cell in counter_row.counts.items()
                }  # copied: the caller keeps changing its dict
                self._counter_rows[slot] = CounterRow(counter_row.process, counter_row.hour, counter_row.number, counts)
        if counter_rows:
            self._expire_counts(SWEEP_PER_ROW * len(counter_rows))
        return self._clock.now()

    def _counted(self, since: int) -> StoredCounts:
        now = self._clock.now()
        first = max(since, oldest_kept_hour(now))
        return StoredCounts(
            [counter_row for (hour, _), counter_row in sorted(self._counter_rows.items()) if hour >= first], now
        )

    def _expire_counts(self, limit: int) -> int:
        oldest = oldest_kept_hour(self._clock.now())
        old = [slot for slot in self._counter_rows if slot[0] < oldest][:limit]
        for slot in old:
            del self._counter_rows[slot]
        return len(old)
