"""Clocks that several processes share and that no time server changes."""

from __future__ import annotations

import time


class SharedClock:
    """The machine's monotonic clock plus a fixed offset. `tick` µs is the smallest step."""

    def __init__(self, offset: int | None = None, tick: int = 1) -> None:
        self.offset = time.time_ns() - time.monotonic_ns() if offset is None else offset
        self._tick = tick

    def now(self) -> int:
        now = (time.monotonic_ns() + self.offset) // 1_000
        return now - now % self._tick
