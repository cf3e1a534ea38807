"""A queue that delivers at least once, in memory."""

from __future__ import annotations

import heapq

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
        if self._later and self._later[0][0] <= now:
            return heapq.heappop(self._later)[2]
        delivery = next(self._traffic, None)
        if delivery is None:
            self._dry = True
        else:
            self._out[delivery.number] = delivery
        return delivery

    def acknowledge(self, delivery: Delivery) -> None:
        """A delivery that is out has been dealt with."""
        del self._out[delivery.number]

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
