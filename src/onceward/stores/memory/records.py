"""The records of a store in memory: one takes the place of another, and what is over goes by the way of claims."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from itertools import count

from onceward.errors import StoreFull
from onceward.protocol import transitions
from onceward.protocol.record import Record, RecordState
from onceward.stores.mutex import Mutex

FREE = RecordState.FREE
SWEEP = 2  # records purged by the way a claim: twice what a claim can add, so that the store never only grows
SLACK = 64  # entries of the past that a small store may keep, so that it does not compact all the time


class MemoryRecords:
    """Part of `MemoryStore`. `_noted` holds ends that wait to be put into `_ending`, where what ends first is first."""

    _mutex: Mutex
    _max: int | None

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[bytes, Record] = {}
        self._ending: list[tuple[int, int, bytes]] = []
        self._noted: deque[tuple[int, bytes]] = deque()
        self._order = count()
        self._floor = 0  # above every token that was evicted young: claims are never given a time below it
        self._turn = threading.RLock()  # not a Lock: what a signal handler asks must not wait for its own thread

    def _exchange(self, before: Record | None, after: Record) -> bool:
        """Put a record in the place of another; False if that is not there any more: look again."""
        end = after.updated_at if after.state is FREE else after.valid_until  # as `_end_of`
        if end is not None:
            self._noted.append((end, after.id))  # first: one too many does no harm
        if before is not None:
            return self._swap(before, after)
        if self._max is not None:
            return self._mutex.run(self._add, after, self._max)
        return self._records.setdefault(after.id, after) is after

    def _swap(self, before: Record, after: Record) -> bool:
        records, id = self._records, after.id
        with self._turn:
            try:
                if records[id] is before:  # no call between the look and the change: no handler of a signal gets a turn
                    records[id] = after
                    return True
            except KeyError:
                pass  # purged
        return False

    def _delete(self, record: Record) -> bool:
        records, id = self._records, record.id
        with self._turn:
            try:
                if records[id] is record:  # as above
                    del records[id]
                    return True
            except KeyError:
                pass  # purged by somebody else
        return False

    # ── making room ──

    def _add(self, record: Record, most: int) -> bool:
        """A new key, where only so many may be."""
        if record.id in self._records or record.token < self._floor:
            return False
        if len(self._records) >= most:
            self._make_room(record.claimed_at)
        self._records[record.id] = record
        return True

    def _tidy(self, now: int) -> int:
        """By the way of a claim: let go of what is over. The time that the claim is given."""
        now = max(now, self._floor)
        over, noted, ending = now - transitions.CLOCK_MARGIN, self._noted, self._ending
        if len(noted) > SLACK or (noted and noted[0][0] <= over) or (ending and ending[0][0] <= over):
            self._mutex.run(self._sweep, now, SWEEP)
        return now

    def _sort_in(self) -> None:
        """What ends first comes first. A key that is tried again and again leaves an entry behind each time."""
        while self._noted:
            end, id = self._noted.popleft()
            heapq.heappush(self._ending, (end, next(self._order), id))
        if len(self._ending) > 2 * len(self._records) + SLACK:
            self._compact()

    def _compact(self) -> None:
        """One entry a record."""
        ends = ((_end_of(record), record.id) for record in tuple(self._records.values()))
        self._ending = [(end, next(self._order), id) for end, id in ends if end is not None]
        heapq.heapify(self._ending)

    def _sweep(self, now: int, most: int) -> None:
        self._sort_in()
        for _ in range(most):
            if not self._ending or self._ending[0][0] > now - transitions.CLOCK_MARGIN:
                return
            id = heapq.heappop(self._ending)[2]
            record = self._records.get(id)
            if record is not None and transitions.purgeable(record, now):
                self._delete(record)

    def _make_room(self, now: int) -> None:
        self._sort_in()
        while self._ending and self._ending[0][0] <= now:
            id = heapq.heappop(self._ending)[2]
            record = self._records.get(id)
            if record is None or transitions.row_of(record, now) not in transitions.STARTS_NEW_CYCLE:
                continue
            if self._delete(record):
                self._floor = max(self._floor, record.token + 1)
                return
        raise StoreFull(
            f"the memory store holds {self._max} records, and each still answers for its key",
            hint="raise max_records, shorten the windows, or use a store on disk",
        )


def _end_of(record: Record) -> int | None:
    """From when on the record answers for nothing; None if nobody knows yet."""
    return record.updated_at if record.state is RecordState.FREE else record.valid_until
