"""Simulate a queue with at-least-once delivery: some events come once, many several times, all out of order."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator

from msgspec import Struct

from .contract import StormEvent, Trouble
from .plan import Plan

DIRECTLY_AFTER = 1e-6  # positions: nothing comes between the original and a copy that directly follows it


class StormDelivery(Struct, frozen=True):
    """One message. Each copy of an event has its own number, as in a real queue."""

    number: int
    event: StormEvent


class Traffic(Iterator[StormDelivery]):
    """Yields the deliveries in order. An event exists as soon as its first copy is delivered."""

    def __init__(self, events: Iterator[StormEvent], plan: Plan) -> None:
        self._events = enumerate(events)
        self._plan = plan
        self._rng = random.Random(f"{plan.seed} traffic")
        self._left = math.inf if plan.size is None else plan.size  # still to be planned
        self._scheduled: list[tuple[float, int, int, StormEvent]] = []
        self._horizon = 0  # all deliveries planned from now on come after this position
        self._planned = 0
        self._delivered = 0
        self._delivered_events: dict[int, StormEvent] = {}

    @property
    def events(self) -> list[StormEvent]:
        """The events delivered so far, in their original order."""
        return [self._delivered_events[index] for index in sorted(self._delivered_events)]

    def stop(self) -> None:
        """Deliver no new events and no more copies."""
        self._left = 0
        self._scheduled.clear()

    def __next__(self) -> StormDelivery:
        while self._left and (not self._scheduled or self._scheduled[0][0] >= self._horizon):
            self._take_event()
        if not self._scheduled:
            raise StopIteration
        _, _, index, event = heapq.heappop(self._scheduled)
        self._delivered_events[index] = event
        self._delivered += 1
        return StormDelivery(self._delivered, event)

    def _take_event(self) -> None:
        index, event = next(self._events, (None, None))
        if index is None or event is None:
            raise Trouble(
                f"events() ended after {len(self._delivered_events)} events were delivered; "
                "it must yield events without end"
            )
        first = index + self._rng.random() * self._plan.reorder
        positions = [first]
        for _ in range(self._copies()):
            together = self._rng.random() < self._plan.together
            positions.append(first + (DIRECTLY_AFTER if together else self._rng.random() * self._plan.late))
        for position in positions[: int(min(self._left, len(positions)))]:
            heapq.heappush(self._scheduled, (position, self._planned, index, event))
            self._planned += 1
            self._left -= 1
        self._horizon = index + 1

    def _copies(self) -> int:
        """Return a number of copies with a Poisson distribution: many events have none or one, some have five."""
        limit = math.exp(-self._plan.duplicates)
        copies = 0
        product = self._rng.random()
        while product > limit:
            product *= self._rng.random()
            copies += 1
        return copies
