"""The runtime of `Once` without waiting: sleeping advances the fake clock instead."""

from __future__ import annotations

import threading

from onceward.runtime.threads import ThreadGate, ThreadRuntime

from .clock import FakeClock


class FakeGate(ThreadGate):
    """A gate whose wait takes no real time: unless the gate is already open, the clock advances by the timeout."""

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
    """The runtime of `Once` on a fake `clock`. Share the clock with the store, so that nothing really sleeps."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock.elapsed / 1_000_000

    def jitter(self) -> float:
        """Always return the middle, so that a test knows how long a wait is."""
        return 0.5

    def gate(self) -> FakeGate:
        return FakeGate(self._clock)

    async def sleep(self, seconds: float) -> None:
        self._clock.advance(seconds)
