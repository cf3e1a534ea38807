"""Clients on a store that fails as a test wants it, and an effect that counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onceward.protocol.ports import Store
from tests.faces import AsyncFace, Colour, Face, Place
from tests.faulty import FaultyPlace, Wire


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def store(place: Place, wire: Wire) -> Store:
    """Each store, reached by the wire."""
    return FaultyPlace(place, wire).open()


@pytest.fixture
def faulty(place: Place, colour: Colour, wire: Wire) -> Iterator[Face]:
    """A client of each colour on each store, reached by the wire."""
    behind = FaultyPlace(place, wire)
    face = Face(behind) if colour == "blocking" else AsyncFace(behind)
    yield face
    wire.heal()
    face.close()


class Effect:
    """Work that counts how often it really happened."""

    def __init__(self, result: Any = "sent") -> None:
        self.times = 0
        self._result = result
        self.__name__ = self.__qualname__ = "effect"

    def __call__(self) -> Any:
        self.times += 1
        return self._result
