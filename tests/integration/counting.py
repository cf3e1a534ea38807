"""A client that counts, and what it has counted."""

from __future__ import annotations

import pytest

from onceward.protocol.counters import CounterTotals
from tests.clients import SyncClient


def counted(client: SyncClient) -> dict[str, int]:
    """Return all counters in the store, after this client has written its own."""
    assert client.once.counters.write()
    return sums(client)


def sums(client: SyncClient) -> dict[str, int]:
    tally: CounterTotals = client.wait(client.once.stats())
    names = {name for counts in tally.hours.values() for cell in counts.values() for name in cell}
    return {name: tally.total(name) for name in sorted(names)}


def work(amount: int = 1) -> int:
    return amount


def break_down() -> None:
    raise ConnectionError


@pytest.fixture
def counting(client: SyncClient) -> SyncClient:
    return client.another(counters=True, app="shop")
