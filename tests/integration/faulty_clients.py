"""Clients on a store that fails on request, and an effect that counts its calls."""

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
    """Each store, reached through the faulty network."""
    return FaultyBackend(backend, network).open()


@pytest.fixture
def faulty(backend: Backend, mode: Mode, network: FaultyNetwork) -> Iterator[SyncClient]:
    """A sync and an async client on each store, reached through the faulty network."""
    faulty_backend = FaultyBackend(backend, network)
    client = SyncClient(faulty_backend) if mode == "blocking" else AsyncClient(faulty_backend)
    yield client
    network.heal()
    client.close()


class Effect:
    """Work that counts how often it was executed."""

    def __init__(self, result: Any = "sent") -> None:
        self.times = 0
        self._result = result
        self.__name__ = self.__qualname__ = "effect"

    def __call__(self) -> Any:
        self.times += 1
        return self._result
