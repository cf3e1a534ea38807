"""A queue that delivers at least once, in memory."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from examples.demo.traffic import Delivery


class Backlog:
    """What was handed out and not acknowledged comes back, as often as it takes."""

    def __init__(self, deliveries: Iterable[Delivery]) -> None:
        self._ready = deque(deliveries)
        self._later: list[tuple[float, Delivery]] = []
        self.left = len(self._ready)

    def take(self, now: float) -> Delivery | None:
        if self._later and self._later[0][0] <= now:
            return heapq.heappop(self._later)[1]
        return self._ready.popleft() if self._ready else None

    def acknowledge(self) -> None:
        """A delivery that is out has been dealt with."""
        self.left -= 1

    def put_back(self, delivery: Delivery, at: float) -> None:
        """To be handed out again, not before that time."""
        heapq.heappush(self._later, (at, delivery))
