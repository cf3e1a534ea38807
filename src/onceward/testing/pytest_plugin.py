"""Fixtures for pytest, which finds them without an import: `once_store`, `once_clock`, `once_disabled`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceward.stores.memory import MemoryStore

from .clock import FakeClock
from .disabled import disabled


@pytest.fixture
def once_clock() -> FakeClock:
    """A clock that moves only when the test moves it: `once_clock.advance("10m")`."""
    return FakeClock()


@pytest.fixture
def once_store(request: pytest.FixtureRequest) -> MemoryStore:
    """An empty store in memory, new for each test. If the test uses `once_clock`, it is the clock of this store."""
    if "once_clock" not in request.fixturenames:
        return MemoryStore()
    clock: FakeClock = request.getfixturevalue("once_clock")
    return MemoryStore(clock=clock)


@pytest.fixture
def once_disabled() -> Iterator[None]:
    """Run decorated functions as if they were not decorated, for tests of the work itself."""
    with disabled():
        yield
