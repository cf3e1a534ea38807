"""A client that counts, and what it has counted."""

from __future__ import annotations

import pytest

from onceward.protocol.counters import Tally
from tests.faces import Face


def counted(face: Face) -> dict[str, int]:
    """All that is in the store, after this client has written its part."""
    assert face.once.counters.write()
    return sums(face)


def sums(face: Face) -> dict[str, int]:
    tally: Tally = face._wait(face.once.stats())
    names = {name for counts in tally.hours.values() for cell in counts.values() for name in cell}
    return {name: tally.total(name) for name in sorted(names)}


def work(amount: int = 1) -> int:
    return amount


def break_down() -> None:
    raise ConnectionError


@pytest.fixture
def counting(face: Face) -> Face:
    return face.another(counters=True, app="shop")
