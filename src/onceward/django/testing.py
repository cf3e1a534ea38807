"""Tools for the tests of a Django project: a clock that moves only when the test moves it.

With pytest, add `pytest_plugins = ["onceward.django.pytest_plugin"]` to `conftest.py` and use the fixture
`onceward_clock`. Records need no tools: tests isolate them like any other row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onceward.testing.clock import FakeClock

from .store import set_clock


@contextmanager
def fake_clock() -> Iterator[FakeClock]:
    """Return a block in which all records use a `FakeClock`. Call its `advance("10m")` instead of waiting."""
    clock = FakeClock()
    stop = set_clock(clock)
    try:
        yield clock
    finally:
        stop()
