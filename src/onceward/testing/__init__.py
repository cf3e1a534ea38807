"""For tests of your own: an off switch, a clock that you turn, a world without waiting, and the kit for store authors.

Storms, which kill the workers of a handler of yours, are in `onceward.testing.storm`.
The kit is in `onceward.testing.conformance` and is not imported here: it needs a test runner and Hypothesis. Recorded
histories and their checker are in `onceward.testing.history`.
"""

from .clock import FakeClock
from .disabled import disabled
from .fake_threads import FakeRuntime

__all__ = ["FakeClock", "FakeRuntime", "disabled"]
