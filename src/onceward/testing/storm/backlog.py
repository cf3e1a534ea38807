"""A queue that delivers at least once, in memory."""

from __future__ import annotations

import heapq
from collections.abc import Container

from .traffic import Delivery, Traffic


class Backlog:
    """What was handed out and not acknowledged comes back, as often as it takes."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._later: list[tuple[float, int, Delivery]] = []
        self._out: dict[int, Delivery] = {}
        self._dry = False

    def take(self, now: float) -> Delivery | None:
        """The next one; None if there is none just now."""
        while self._later and self._later[0][0] <= now:
            _, _, again = heapq.heappop(self._later)
            if self.is_out(again):
                return again
        delivery = next(self._traffic, None)
        if delivery is None:
            self._dry = True
        else:
            self._out[delivery.number] = delivery
        return delivery

    def take_again(self, now: float, among: Container[int]) -> Delivery | None:
        """As `take`, but only one of those numbers, which has been put back."""
        due = (entry for entry in self._later if entry[0] <= now and entry[1] in among and self.is_out(entry[2]))
        entry = min(due, default=None)
        if entry is None:
            return None
        self._later.remove(entry)
        heapq.heapify(self._later)
        return entry[2]

    def is_out(self, delivery: Delivery) -> bool:
        """Handed out at least once, and not acknowledged."""
        return delivery.number in self._out

    def acknowledge(self, delivery: Delivery) -> None:
        """It has been dealt with; by two workers, if one was paused."""
        self._out.pop(delivery.number, None)

    def put_back(self, delivery: Delivery, at: float) -> None:
        """To be handed out again, not before that time."""
        heapq.heappush(self._later, (at, delivery.number, delivery))

    def stop(self) -> None:
        """Nothing new from now on."""
        self._traffic.stop()
        self._dry = True

    @property
    def unacknowledged(self) -> list[Delivery]:
        return list(self._out.values())

    @property
    def empty(self) -> bool:
        return self._dry and not self._out
