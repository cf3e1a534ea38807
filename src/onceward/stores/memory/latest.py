"""The newest state of entities in memory: `protocol.latest.rule` itself, applied to two dicts."""

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
    paged,
)
from onceward.protocol.ordering import content_of
from onceward.protocol.ports import Clock
from onceward.stores.mutex import Mutex

SWEEP = 4
"""Of what has expired, deleted by the way per delivery: twice what a delivery can add."""

SLACK = 64
"""Entries of the past that a small store may keep, so that it does not compact all the time."""


class MemoryLatest:
    """Part of `MemoryStore`."""

    _clock: Clock
    _mutex: Mutex
    _max: int | None

    def __init__(self) -> None:
        super().__init__()
        self._standings: dict[bytes, EntityState] = {}
        self._marks: dict[bytes, DedupMark] = {}
        self._expiring: list[tuple[int, int, bytes]] = []
        self._expiries = count()

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        return self._mutex.run(self._apply_events, deliveries, keep)

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
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
        return paged(self._mutex.run(self._entities, scope, cursor or b"", limit), limit)

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        return self._mutex.run(self._known, ids, self._clock.now())

    # ── the same, alone ──

    def _apply_events(self, deliveries: Sequence[EventDelivery], keep: Retention) -> list[LatestResult]:
        now = self._clock.now()
        self._expire(SWEEP * len(deliveries), now)
        orders = {one.id: one.order for one in self._latest([delivery.id for delivery in deliveries], now) if one}
        ids = [id for delivery in deliveries for id in (delivery.message, delivery.event) if id]
        known = (self._marks.get(id) for id in ids)
        marks = {one.id: one.content for one in known if one and now < one.expires_at}
        decisions = decide(deliveries, orders, marks, now)
        self._make_room_for(decisions)
        self._write(decisions, keep, now)
        return decisions.answers

    def _write(self, decisions: LatestDecisions, keep: Retention, now: int) -> None:
        """States first: a signal may strike in between, and a mark without its state would be a lost event."""
        for id, one in decisions.updates.items():
            end = now + keep.deleted if one.value is None else None
            self._standings[id] = EntityState(id, one.scope, one.entity, one.order, one.value, now, end)
            if end is not None:
                heapq.heappush(self._expiring, (end, next(self._expiries), id))
        for id, one in decisions.marks.items():
            expires = now + keep.marks
            self._marks[id] = DedupMark(id, content_of(one.order), one.trace, now, expires)
            heapq.heappush(self._expiring, (expires, next(self._expiries), id))
        if len(self._expiring) > 2 * (len(self._marks) + len(self._standings)) + SLACK:
            self._compact_expiring()

    def _compact_expiring(self) -> None:
        """One entry each: an entity that is deleted again and again leaves one behind each time."""
        ends: list[tuple[int | None, bytes]] = [(one.expires_at, one.id) for one in self._marks.values()]
        ends += [(one.expires_at, one.id) for one in self._standings.values()]
        self._expiring = [(end, next(self._expiries), id) for end, id in ends if end is not None]
        heapq.heapify(self._expiring)

    def _make_room_for(self, decisions: LatestDecisions) -> None:
        """Before anything is written: a mark without its state would be a lost event."""
        if self._max is None:
            return
        more = _new(decisions.marks, self._marks) + _new(decisions.updates, self._standings)
        if more and len(self._marks) + len(self._standings) + more > self._max:
            raise StoreFull(
                f"the memory store holds {self._max} entities and marks of events, and needs {more} more",
                hint="raise max_records, shorten the window, or use a store on disk",
            )

    def _latest(self, ids: Sequence[bytes], now: int) -> list[EntityState | None]:
        found = (self._standings.get(id) for id in ids)
        return [None if one is None or (one.expires_at is not None and one.expires_at <= now) else one for one in found]

    def _entities(self, scope: str, after: bytes, limit: int) -> list[EntityState]:
        found = (one for one in self._standings.values() if one.value is not None and one.scope == scope)
        return heapq.nsmallest(limit, (one for one in found if one.id > after), key=lambda one: one.id)

    def _known(self, ids: Sequence[bytes], now: int) -> list[DedupMark | None]:
        found = (self._marks.get(id) for id in ids)
        return [one if one is not None and now < one.expires_at else None for one in found]

    def _expire(self, limit: int, now: int) -> int:
        gone = 0
        while gone < limit and self._expiring and self._expiring[0][0] <= now:
            id = heapq.heappop(self._expiring)[2]
            for kept in (self._marks, self._standings):
                one = kept.get(id)
                if one is not None and one.expires_at is not None and one.expires_at <= now:
                    del kept[id]
                    gone += 1
        return gone


def _new(wanted: Mapping[bytes, EventDelivery], there: Mapping[bytes, object]) -> int:
    return sum(id not in there for id in wanted)
