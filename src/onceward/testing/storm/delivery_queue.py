"""An in-memory queue with at-least-once delivery."""

from __future__ import annotations

from collections.abc import Container

from .traffic import StormDelivery, Traffic


class DeliveryQueue:
    """Delivers each message again until it is acknowledged."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._scheduled: list[tuple[float, int, StormDelivery]] = []
        self._unacknowledged: dict[int, StormDelivery] = {}
        self._exhausted = False

    def take(self, now: float, among: Container[int] | None = None) -> StormDelivery | None:
        """Return the next delivery, or None if there is none at this time.

        With `among`, return only a delivery that was put back and has one of these numbers.
        """
        self._scheduled = [entry for entry in self._scheduled if self.is_unacknowledged(entry[2])]
        due = [entry for entry in self._scheduled if entry[0] <= now and (among is None or entry[1] in among)]
        if due:
            self._scheduled.remove(min(due))
            return min(due)[2]
        if among is not None:
            return None
        delivery = next(self._traffic, None)
        if delivery is None:
            self._exhausted = True
        else:
            self._unacknowledged[delivery.number] = delivery
        return delivery

    def is_unacknowledged(self, delivery: StormDelivery) -> bool:
        """Return whether it was delivered at least once and is not acknowledged."""
        return delivery.number in self._unacknowledged

    def acknowledge(self, delivery: StormDelivery) -> None:
        """Acknowledge a delivery. Two workers may acknowledge the same one, if one of them was paused."""
        self._unacknowledged.pop(delivery.number, None)

    def put_back(self, delivery: StormDelivery, at: float) -> None:
        """Schedule a delivery to be delivered again, not before this time."""
        self._scheduled.append((at, delivery.number, delivery))

    def stop(self) -> None:
        """Deliver nothing new from now on."""
        self._traffic.stop()
        self._exhausted = True

    @property
    def unacknowledged(self) -> list[StormDelivery]:
        return list(self._unacknowledged.values())

    @property
    def empty(self) -> bool:
        return self._exhausted and not self._unacknowledged
