"""What a queue with at-least-once delivery sends: some events once, many several times, none in order."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator

from msgspec import Struct

from .contract import Event
from .errors import Trouble
from .plan import Plan

BEHIND = 1e-6  # of a place: nothing comes between an original and a copy that is right behind it


class Delivery(Struct, frozen=True):
    """One message. Copies of an event have numbers of their own, as the copies that a queue makes have."""

    number: int
    event: Event


class Traffic(Iterator[Delivery]):
    """The deliveries in the order of their coming. An event comes into the world when its first copy is delivered."""

    def __init__(self, events: Iterator[Event], plan: Plan) -> None:
        self._events = enumerate(events)
        self._plan = plan
        self._dice = random.Random(f"{plan.seed} traffic")
        self._left = math.inf if plan.size is None else plan.size  # to be planned
        self._coming: list[tuple[float, int, int, Event]] = []
        self._horizon = 0  # whatever is planned from now on comes behind this place
        self._planned = 0
        self._delivered = 0
        self._met: dict[int, Event] = {}

    @property
    def events(self) -> list[Event]:
        """Those that were delivered so far, in the order in which they happened."""
        return [self._met[index] for index in sorted(self._met)]

    def stop(self) -> None:
        """Nothing new any more, and no copies of what is old."""
        self._left = 0
        self._coming.clear()

    def __next__(self) -> Delivery:
        while self._left and (not self._coming or self._coming[0][0] >= self._horizon):
            self._take_event()
        if not self._coming:
            raise StopIteration
        _, _, index, event = heapq.heappop(self._coming)
        self._met[index] = event
        self._delivered += 1
        return Delivery(self._delivered, event)

    def _take_event(self) -> None:
        index, event = next(self._events, (None, None))
        if index is None or event is None:
            raise Trouble(f"events() ended after {len(self._met)} events were delivered; it has to go on without end")
        first = index + self._dice.random() * self._plan.reorder
        places = [first]
        for _ in range(self._copies()):
            together = self._dice.random() < self._plan.together
            places.append(first + (BEHIND if together else self._dice.random() * self._plan.late))
        for place in places[: int(min(self._left, len(places)))]:
            heapq.heappush(self._coming, (place, self._planned, index, event))
            self._planned += 1
            self._left -= 1
        self._horizon = index + 1

    def _copies(self) -> int:
        """Poisson's: many have none or one, some have five."""
        enough = math.exp(-self._plan.duplicates)
        copies = 0
        product = self._dice.random()
        while product > enough:
            product *= self._dice.random()
            copies += 1
        return copies
