"""Clocks for stores without a server clock."""

from __future__ import annotations

import time
from collections.abc import Callable


class WallClock:
    """The machine's clock: the only one that several processes on the same file share."""

    def now(self) -> int:
        return time.time_ns() // 1_000


class SteadyClock:
    """Starts at the wall clock's time and then never jumps. For records that live in one process."""

    def __init__(self) -> None:
        monotonic = time.monotonic_ns
        offset = time.time_ns() - monotonic()
        self.now: Callable[[], int] = lambda: (monotonic() + offset) // 1_000  # fast: called twice per request
