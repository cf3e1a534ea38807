"""Clocks for stores that have none of their own."""

from __future__ import annotations

import time


class WallClock:
    """The machine's clock: the only one that several processes on one file agree on."""

    def now(self) -> int:
        return time.time_ns() // 1_000


class SteadyClock:
    """Starts at the wall clock's time and then never jumps: right for records that live in one process."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        return (time.monotonic_ns() + self._offset) // 1_000
