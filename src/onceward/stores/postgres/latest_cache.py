"""What a connection saw or wrote last of entities, so that they need not be looked up for every batch.

It is only a guess: somebody else may have moved an entity since. But an order never gets lower while the entity is
there, so that what is below it stays below; and what is above it is written only over the very order that was guessed.
Once it is deleted, it is gone after a while; whoever saw it alive forgets it sooner. It is as old as its connection at
the most: a server that came back from a backup, or another one in its place, has ended that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from onceward.protocol.latest import EventDelivery

MOST: Final = 16_384
"""Entities that are kept at hand: a few megabytes."""

OLDEST: Final = 60_000_000
"""Microseconds, then they are looked up once more."""

PAUSE: Final = 16
"""After a wrong guess, so many batches look: whoever works on the same entities will go on."""


class PostgresLatestCache:
    """Orders of entities that are there and not deleted; and how far the server's clock is ahead of ours, in µs."""

    __slots__ = ("_ahead", "_pause", "_since", "orders")

    def __init__(self) -> None:
        self.orders: dict[bytes, bytes] = {}
        self._since = 0
        self._ahead = 0.0
        self._pause = 0

    def now(self) -> int:
        return int(time.monotonic() * 1e6 + self._ahead)

    def serves(self, deliveries: Sequence[EventDelivery]) -> bool:
        """Whether a guess may be made about these: they have no marks, and nothing of them expires."""
        if self._pause:
            self._pause -= 1
            return False
        return not any(one.message or one.event or one.value is None for one in deliveries)

    def unknown(self, deliveries: Sequence[EventDelivery], deleted: int, given_now: int | None) -> list[bytes]:
        """Entities that have to be looked up, in the order of their ids.

        What is left of a deleted one stays for `deleted`: it may be gone, if this saw it alive that long ago.
        """
        now = time.monotonic_ns() // 1000 if given_now is None else given_now
        if len(self.orders) > MOST or now - self._since >= min(OLDEST, deleted):
            self.orders.clear()
            self._since = now
        return sorted({one.id for one in deliveries}.difference(self.orders))

    def saw(self, orders: Mapping[bytes, bytes], now: int) -> None:
        """By a look, at that time of the server's."""
        self._ahead = now - time.monotonic() * 1e6
        self.orders.update(orders)

    def wrote(self, updates: Mapping[bytes, EventDelivery]) -> None:
        """And committed it."""
        for id, one in updates.items():
            self.orders[id] = one.order

    def was_wrong(self) -> None:
        self.orders.clear()
        self._pause = PAUSE
