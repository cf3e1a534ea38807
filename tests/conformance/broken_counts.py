"""Stores whose counters are broken on purpose."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec.structs import replace

from onceward.protocol.counters import CounterRow, Counts, StoredCounts
from onceward.stores.memory.store import MemoryStore


class AddsUp(MemoryStore):
    """Adds the new counts to the stored ones, as a counter in SQL is usually written."""

    def _keep_counts(self, counter_rows: Sequence[CounterRow]) -> int:
        for counter_row in counter_rows:
            before = self._counter_rows.get((counter_row.hour, counter_row.process))
            counts = sum_of(counter_row.counts, before.counts if before else {})
            self._counter_rows[counter_row.hour, counter_row.process] = replace(counter_row, counts=counts)
        return self._clock.now()


def sum_of(counts: Counts, before: Counts) -> Counts:
    return {
        scope: {name: number + before.get(scope, {}).get(name, 0) for name, number in cell.items()}
        for scope, cell in counts.items()
    }


class TakesTheLastArrival(MemoryStore):
    """Replaces the stored row with whichever row arrives last."""

    def _keep_counts(self, counter_rows: Sequence[CounterRow]) -> int:
        for counter_row in counter_rows:
            self._counter_rows[counter_row.hour, counter_row.process] = counter_row
        return self._clock.now()


class KeepsTheFirst(MemoryStore):
    """INSERT … ON CONFLICT DO NOTHING."""

    def _keep_counts(self, counter_rows: Sequence[CounterRow]) -> int:
        for counter_row in counter_rows:
            self._counter_rows.setdefault((counter_row.hour, counter_row.process), counter_row)
        return self._clock.now()


class OneRowAnHour(MemoryStore):
    """Stores one row for all processes."""

    def _keep_counts(self, counter_rows: Sequence[CounterRow]) -> int:
        return super()._keep_counts([replace(counter_row, process=b"all") for counter_row in counter_rows])


class BorrowsTheCounts(MemoryStore):
    """Stores the caller's own dict, which the caller keeps changing."""

    def _keep_counts(self, counter_rows: Sequence[CounterRow]) -> int:
        now = super()._keep_counts(counter_rows)
        for counter_row in counter_rows:
            self._counter_rows[counter_row.hour, counter_row.process] = counter_row
        return now


class WritesOnEmptySave(MemoryStore):
    """Writes a row when it is called without rows, only to return the time."""

    def _keep_counts(self, counter_rows: Sequence[CounterRow]) -> int:
        now = super()._keep_counts(counter_rows)
        return now if counter_rows else super()._keep_counts([CounterRow(b"visitor", now // 3_600_000_000, 1, {})])


class ReturnsTheMachinesTime(MemoryStore):
    """Returns the time of the machine, not of the clock that decides about leases."""

    def _keep_counts(self, counter_rows: Sequence[CounterRow]) -> int:
        super()._keep_counts(counter_rows)
        return time.time_ns() // 1_000


class NeverExpiresCounts(MemoryStore):
    """Returns and keeps rows of any age."""

    def _counted(self, since: int) -> StoredCounts:
        return StoredCounts(
            [counter_row for counter_row in self._counter_rows.values() if counter_row.hour >= since], self._clock.now()
        )

    def _expire_counts(self, limit: int) -> int:
        return 0
