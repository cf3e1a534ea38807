"""A clock that moves only when the test moves it."""

from __future__ import annotations

import threading

from onceward.protocol.duration import Duration, microseconds

NEW_YEAR_2026 = 1_767_225_600_000_000
"""The default start of a fake clock: a date that is easy to recognise in a failing test."""


class FakeClock:
    """The `clock` of a store under test: call `advance("10m")` instead of waiting for ten minutes.

    `start` is its first time, in µs since 1970.
    """

    def __init__(self, start: int = NEW_YEAR_2026) -> None:
        self._now = start
        self._elapsed = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        """Return the time in µs since 1970."""
        return self._now

    @property
    def elapsed(self) -> int:
        """Microseconds advanced so far. This is monotonic time: setting the clock back does not reduce it."""
        return self._elapsed

    def advance(self, duration: Duration) -> None:
        """Let a `duration` pass, such as `"10m"`."""
        self.advance_microseconds(microseconds(duration))

    def advance_microseconds(self, step: int) -> None:
        """Let `step` µs pass."""
        with self._lock:
            self._now += step
            self._elapsed += step

    def set_back(self, duration: Duration) -> None:
        """Set the wall clock back by a `duration`, as an operator or a time server may do. No time passes."""
        self.set_back_microseconds(microseconds(duration))

    def set_back_microseconds(self, step: int) -> None:
        """Set the wall clock back by `step` µs. No time passes."""
        with self._lock:
            self._now -= step
