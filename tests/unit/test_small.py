"""`is_small` decides whether a value is encoded on the event loop. It never takes a large value for a small one."""

from __future__ import annotations

import dataclasses
import datetime as dt
import uuid
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from onceward.keys.small import SMALL_BYTES, is_small


@dataclasses.dataclass(slots=True)
class Slotted:
    text: str = "x"


class Gone:
    """A lazy proxy whose object does not exist any more."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]  # it raises
        raise RuntimeError("gone")


SHARED: list[Any] = ["x" * 1000]
for _ in range(40):  # 2**40 texts, in 41 lists
    SHARED = [SHARED, SHARED]

SMALL: dict[str, Any] = {
    "nothing": None,
    "a text": "x" * (SMALL_BYTES - 100),
    "an order": {"id": uuid.UUID(int=1), "lines": [{"price": Decimal("1.5"), "at": dt.datetime.now(dt.UTC)}] * 20},
    "an instance": SimpleNamespace(name="x", tags=("a", "b"), kinds={1, 2}),
    "200 numbers": list(range(200)),
}
LARGE: dict[str, Any] = {
    "a text": "x" * SMALL_BYTES,
    "bytes in an instance": SimpleNamespace(data=bytes(SMALL_BYTES)),
    "an int": 1 << 8 * SMALL_BYTES,
    "many texts": ["x" * 1000] * 20,
    "long keys": {"x" * SMALL_BYTES: 1},
    "300 numbers": list(range(300)),
    "many, but nested": [[1] * 100, [2] * 100, [3] * 100],
    "shared values": SHARED,
    "an unknown size": Slotted(),
    "a generator": iter("x"),
    "a proxy that raises": Gone(),
}


@pytest.mark.parametrize("what", SMALL)
def test_small_values(what: str) -> None:
    assert is_small(SMALL[what])


@pytest.mark.parametrize("what", LARGE)
def test_values_that_are_large_or_of_unknown_size(what: str) -> None:
    assert not is_small(LARGE[what])


def test_a_value_that_contains_itself_is_not_small() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert not is_small(endless)
