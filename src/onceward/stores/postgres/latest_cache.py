"""The orders of entities that a connection read or wrote last, so that a batch need not look them up.

A cached order may be outdated: another client may have changed the entity. That is safe. An order never decreases while
the entity exists, so an event below the cached order is stale; an event above it is written only if the stored order is
the cached one. A deleted entity disappears after a while; the cache forgets it sooner. The cache is never older than
its connection, so a server that was restored from a backup or replaced is not affected.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from onceward.protocol.latest import EventDelivery

MAX_ENTITIES: Final = 16_384
"""The maximum number of cached entities: a few megabytes."""

MAX_AGE: Final = 60_000_000
"""Microseconds after which entities are looked up again."""

SKIPPED_BATCHES: Final = 16
"""After an outdated entry, this many batches skip the cache: other writers of the same entities are active."""


class PostgresLatestCache:
    """Orders of entities that exist and are not deleted, and the offset of the server's clock in µs."""

    __slots__ = ("_clock_offset", "_since", "_skip", "orders")

    def __init__(self) -> None:
        self.orders: dict[bytes, bytes] = {}
        self._since = 0
        self._clock_offset = 0.0
        self._skip = 0

    def now(self) -> int:
        return int(time.monotonic() * 1e6 + self._clock_offset)

    def can_serve(self, deliveries: Sequence[EventDelivery]) -> bool:
        """Return whether the cache may be used for these deliveries: they have no marks, and none deletes."""
        if self._skip:
            self._skip -= 1
            return False
        return not any(one.message or one.event or one.value is None for one in deliveries)

    def unknown(self, deliveries: Sequence[EventDelivery], deleted: int, fixed_now: int | None) -> list[bytes]:
        """Return the entities that must be looked up, in the order of their ids.

        A deleted entity keeps its order for `deleted` µs. After that long, a cached entity may have disappeared.
        """
        now = time.monotonic_ns() // 1000 if fixed_now is None else fixed_now
        if len(self.orders) > MAX_ENTITIES or now - self._since >= min(MAX_AGE, deleted):
            self.orders.clear()
            self._since = now
        return sorted({one.id for one in deliveries}.difference(self.orders))

    def add_read(self, orders: Mapping[bytes, bytes], now: int) -> None:
        """Add orders that were read at this server time."""
        self._clock_offset = now - time.monotonic() * 1e6
        self.orders.update(orders)

    def add_written(self, updates: Mapping[bytes, EventDelivery]) -> None:
        """Add committed writes."""
        for id, one in updates.items():
            self.orders[id] = one.order

    def invalidate(self) -> None:
        self.orders.clear()
        self._skip = SKIPPED_BATCHES
