"""Decorated sync and async functions, on a store in memory or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward.testing import FakeClock
from tests.clients import Backend, SyncClient


@pytest.fixture
def backend(tmp_path: Path, clock: FakeClock) -> Backend:
    """Memory is enough here: nothing in this file depends on the store."""
    return Backend("memory", tmp_path, clock)


def decorated(client: SyncClient, fn: Any, **settings: Any) -> Any:
    """Return the decorated function itself, without the adapter that calls it."""
    return client.once(**settings)(client.work(fn)) if settings else client.once(client.work(fn))
