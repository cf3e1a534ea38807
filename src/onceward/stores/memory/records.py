"""The records of the memory store: compare-and-set per key, and purging of expired records during claims."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from itertools import count

from onceward.errors import StoreFull
from onceward.protocol import transitions
from onceward.protocol.history import HistoryEvent
from onceward.protocol.record import Record, RecordState
from onceward.stores.mutex import Mutex

FREE = RecordState.FREE
SWEEP_PER_CLAIM = 2  # records purged for each claim: twice what a claim can add, so that the store does not only grow
SLACK = 64  # obsolete heap entries that a small store may keep, so that it does not compact all the time


class MemoryRecords:
    """The records of `MemoryStore`.

    `_expiry_heap` is a heap of (expiry, sequence, id). `_new_expiries` holds entries not yet pushed onto it.
    """

    _mutex: Mutex
    _max: int | None

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[bytes, Record] = {}
        self._history: dict[bytes, list[HistoryEvent]] = {}
        self._expiry_heap: list[tuple[int, int, bytes]] = []
        self._new_expiries: deque[tuple[int, bytes]] = deque()
        self._sequence = count()
        self._token_floor = 0  # above the token of every evicted record; claims never get a time below it
        self._write_lock = threading.RLock()  # not a Lock: a signal handler must not deadlock with its own thread

    def _compare_and_set(self, before: Record | None, after: Record) -> bool:
        """Replace `before` by `after`. Return False if `before` is no longer stored: the caller must read again."""
        expiry = after.updated_at if after.state is FREE else after.valid_until  # like `_expiry_of`
        if expiry is not None:
            self._new_expiries.append((expiry, after.id))  # before the change: a superfluous entry does no harm
        records, id = self._records, after.id
        if before is None:
            return records.setdefault(id, after) is after if self._max is None else self._mutex.run(self._add, after)
        with self._write_lock:
            try:
                if records[id] is before:  # no call between the check and the change, so no signal handler runs there
                    records[id] = after
                    return True
            except KeyError:
                pass  # purged
        return False

    def _delete(self, record: Record) -> bool:
        records, id = self._records, record.id
        with self._write_lock:
            try:
                if records[id] is record:  # as above
                    del records[id]
                    self._history.pop(id, None)
                    return True
            except KeyError:
                pass  # purged by another thread
        return False

    # ── purging and eviction ──

    def _add(self, record: Record) -> bool:
        """Add a new key to a bounded store."""
        if record.id in self._records or record.token < self._token_floor:
            return False
        if self._max is not None and len(self._records) >= self._max:
            self._evict_one(record.claimed_at)
        self._records[record.id] = record
        return True

    def _sweep_on_claim(self, now: int) -> int:
        """Purge a few expired records, if there are any. Return the time to use for the claim."""
        now = max(now, self._token_floor)
        limit, new, heap = now - transitions.CLOCK_MARGIN, self._new_expiries, self._expiry_heap
        if len(new) > SLACK or (new and new[0][0] <= limit) or (heap and heap[0][0] <= limit):
            self._mutex.run(self._sweep, now, SWEEP_PER_CLAIM)
        return now

    def _merge_expiries(self) -> None:
        """Push new entries onto the heap. A key that is retried repeatedly leaves an entry each time."""
        while self._new_expiries:
            expiry, id = self._new_expiries.popleft()
            heapq.heappush(self._expiry_heap, (expiry, next(self._sequence), id))
        if len(self._expiry_heap) > 2 * len(self._records) + SLACK:
            self._compact()

    def _compact(self) -> None:
        """Rebuild the heap with one entry per record."""
        expiries = ((_expiry_of(record), record.id) for record in tuple(self._records.values()))
        self._expiry_heap = [(expiry, next(self._sequence), id) for expiry, id in expiries if expiry is not None]
        heapq.heapify(self._expiry_heap)

    def _sweep(self, now: int, limit: int) -> None:
        self._merge_expiries()
        for _ in range(limit):
            if not self._expiry_heap or self._expiry_heap[0][0] > now - transitions.CLOCK_MARGIN:
                return
            id = heapq.heappop(self._expiry_heap)[2]
            record = self._records.get(id)
            if record is not None and transitions.purgeable(record, now):
                self._delete(record)

    def _evict_one(self, now: int) -> None:
        self._merge_expiries()
        while self._expiry_heap and self._expiry_heap[0][0] <= now:
            id = heapq.heappop(self._expiry_heap)[2]
            record = self._records.get(id)
            if record is None or transitions.row_of(record, now) not in transitions.STARTS_NEW_CYCLE:
                continue
            if self._delete(record):
                self._token_floor = max(self._token_floor, record.token + 1)
                return
        raise StoreFull(
            f"the memory store holds {self._max} records, and none of them has expired",
            hint="raise max_records, shorten the windows, or use a store on disk",
        )


def _expiry_of(record: Record) -> int | None:
    """Return when the record stops protecting its key; None if that is not known yet."""
    return record.updated_at if record.state is RecordState.FREE else record.valid_until
