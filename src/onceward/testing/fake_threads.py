"""The blocking world without waiting: sleeping moves the clock instead."""

from __future__ import annotations

import threading

from onceward.runtime.threads import ThreadGate, ThreadRuntime

from .clock import FakeClock


class FakeGate(ThreadGate):
    """A wait that takes no time: unless somebody opened the gate before, the clock jumps to its end."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    async def wait(self, seconds: float) -> None:
        if not self._opened.is_set():
            self._clock.advance(seconds)
        self._opened.clear()


class FakeRuntime(ThreadRuntime):
    """The World of `Once` on a fake clock. Share the clock with the store, and no flow really sleeps."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock.elapsed / 1_000_000

    def jitter(self) -> float:
        """Always the middle, so that a test knows how long a wait is."""
        return 0.5

    def gate(self) -> FakeGate:
        return FakeGate(self._clock)

    async def sleep(self, seconds: float) -> None:
        self._clock.advance(seconds)
