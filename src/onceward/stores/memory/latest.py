"""The latest state of entities in memory: `protocol.latest.decide` applied to two dicts."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import count

from onceward.errors import StoreFull
from onceward.protocol.latest import (
    DedupMark,
    EntityState,
    EventDelivery,
    LatestDecisions,
    LatestResult,
    Retention,
    decide,
    page_of,
)
from onceward.protocol.ordering import content_of
from onceward.protocol.ports import Clock
from onceward.stores.mutex import Mutex

SWEEP_PER_DELIVERY = 4
"""Expired entries deleted for each delivery. Twice the number that a delivery can add."""

SLACK = 64
"""Obsolete heap entries that a small store may keep, so that it does not compact all the time."""


class MemoryLatest:
    """The latest states of `MemoryStore`. `_expiring` is a heap of (expiry, sequence, id), the earliest first."""

    _clock: Clock
    _mutex: Mutex
    _max: int | None

    def __init__(self) -> None:
        super().__init__()
        self._entity_states: dict[bytes, EntityState] = {}
        self._marks: dict[bytes, DedupMark] = {}
        self._expiring: list[tuple[int, int, bytes]] = []
        self._sequence_numbers = count()

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        return self._mutex.run(self._apply_events, deliveries, keep)

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        return self._mutex.run(self._latest, ids, self._clock.now())

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        return self._mutex.run(self._expire, limit, self._clock.now())

    async def entities(
        self,
        scope: str,
        *,
        cursor: bytes | None,
        limit: int,
        timeout: float,
    ) -> tuple[list[EntityState], bytes | None]:
        return page_of(self._mutex.run(self._entities, scope, cursor or b"", limit), limit)

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        return self._mutex.run(self._find_marks, ids, self._clock.now())

    # ── called with the mutex held ──

    def _apply_events(self, deliveries: Sequence[EventDelivery], keep: Retention) -> list[LatestResult]:
        now = self._clock.now()
        self._expire(SWEEP_PER_DELIVERY * len(deliveries), now)
        orders = {one.id: one.order for one in self._latest([delivery.id for delivery in deliveries], now) if one}
        ids = [id for delivery in deliveries for id in (delivery.message, delivery.event) if id]
        known = (self._marks.get(id) for id in ids)
        marks = {one.id: one.content for one in known if one and now < one.expires_at}
        decisions = decide(deliveries, orders, marks, now)
        self._check_capacity(decisions)
        self._write(decisions, keep, now)
        return decisions.answers

    def _write(self, decisions: LatestDecisions, keep: Retention, now: int) -> None:
        """Write states before marks: a signal may interrupt in between, and a mark without its state loses an event."""
        for id, one in decisions.updates.items():
            end = now + keep.deleted if one.value is None else None
            self._entity_states[id] = EntityState(id, one.scope, one.entity, one.order, one.value, now, end)
            if end is not None:
                heapq.heappush(self._expiring, (end, next(self._sequence_numbers), id))
        for id, one in decisions.marks.items():
            expires = now + keep.marks
            self._marks[id] = DedupMark(id, content_of(one.order), one.trace, now, expires)
            heapq.heappush(self._expiring, (expires, next(self._sequence_numbers), id))
        if len(self._expiring) > 2 * (len(self._marks) + len(self._entity_states)) + SLACK:
            self._compact_expiring()

    def _compact_expiring(self) -> None:
        """Keep one heap entry per mark and state: an entity that is deleted repeatedly leaves an entry each time."""
        ends: list[tuple[int | None, bytes]] = [(one.expires_at, one.id) for one in self._marks.values()]
        ends += [(one.expires_at, one.id) for one in self._entity_states.values()]
        self._expiring = [(end, next(self._sequence_numbers), id) for end, id in ends if end is not None]
        heapq.heapify(self._expiring)

    def _check_capacity(self, decisions: LatestDecisions) -> None:
        """Raise StoreFull before anything is written: a mark without its state would be a lost event."""
        if self._max is None:
            return
        more = _count_new(decisions.marks, self._marks) + _count_new(decisions.updates, self._entity_states)
        if more and len(self._marks) + len(self._entity_states) + more > self._max:
            raise StoreFull(
                f"the memory store is limited to {self._max} entities and event marks, and needs {more} more",
                hint="raise max_records, shorten the window, or use a store on disk",
            )

    def _latest(self, ids: Sequence[bytes], now: int) -> list[EntityState | None]:
        found = (self._entity_states.get(id) for id in ids)
        return [None if one is None or (one.expires_at is not None and one.expires_at <= now) else one for one in found]

    def _entities(self, scope: str, after: bytes, limit: int) -> list[EntityState]:
        found = (one for one in self._entity_states.values() if one.value is not None and one.scope == scope)
        return heapq.nsmallest(limit, (one for one in found if one.id > after), key=lambda one: one.id)

    def _find_marks(self, ids: Sequence[bytes], now: int) -> list[DedupMark | None]:
        found = (self._marks.get(id) for id in ids)
        return [one if one is not None and now < one.expires_at else None for one in found]

    def _expire(self, limit: int, now: int) -> int:
        deleted = 0
        while deleted < limit and self._expiring and self._expiring[0][0] <= now:
            id = heapq.heappop(self._expiring)[2]
            for entries in (self._marks, self._entity_states):
                one = entries.get(id)
                if one is not None and one.expires_at is not None and one.expires_at <= now:
                    del entries[id]
                    deleted += 1
        return deleted


def _count_new(ids: Mapping[bytes, EventDelivery], existing: Mapping[bytes, object]) -> int:
    return sum(id not in existing for id in ids)
