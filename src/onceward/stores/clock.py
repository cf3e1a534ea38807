"""Clocks for stores that have none of their own."""

from __future__ import annotations

import time
from collections.abc import Callable


class WallClock:
    """The machine's clock: the only one that several processes on one file agree on."""

    def now(self) -> int:
        return time.time_ns() // 1_000


class SteadyClock:
    """Starts at the wall clock's time and then never jumps: right for records that live in one process."""

    def __init__(self) -> None:
        monotonic = time.monotonic_ns
        offset = time.time_ns() - monotonic()
        self.now: Callable[[], int] = lambda: (monotonic() + offset) // 1_000  # twice a call: nothing is looked up
