"""Fixtures for pytest-django. Add `pytest_plugins = ["onceward.django.pytest_plugin"]` to `conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceward.testing.clock import FakeClock


@pytest.fixture
def onceward_clock() -> Iterator[FakeClock]:
    """Replace the clock of the records: windows and leases end when the test calls `advance`."""
    from .testing import fake_clock

    with fake_clock() as clock:
        yield clock
