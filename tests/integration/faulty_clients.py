"""Clients on a store that fails as a test wants it, and an effect that counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onceward.protocol.ports import Store
from tests.clients import AsyncClient, Backend, Mode, SyncClient
from tests.faulty import FaultyBackend, FaultyNetwork


@pytest.fixture
def network() -> FaultyNetwork:
    return FaultyNetwork()


@pytest.fixture
def store(backend: Backend, network: FaultyNetwork) -> Store:
    """Each store, reached by the wire."""
    return FaultyBackend(backend, network).open()


@pytest.fixture
def faulty(backend: Backend, mode: Mode, network: FaultyNetwork) -> Iterator[SyncClient]:
    """A client of each colour on each store, reached by the wire."""
    behind = FaultyBackend(backend, network)
    client = SyncClient(behind) if mode == "blocking" else AsyncClient(behind)
    yield client
    network.heal()
    client.close()


class Effect:
    """Work that counts how often it really happened."""

    def __init__(self, result: Any = "sent") -> None:
        self.times = 0
        self._result = result
        self.__name__ = self.__qualname__ = "effect"

    def __call__(self) -> Any:
        self.times += 1
        return self._result
