"""Errors of an unreachable store name the key, in the sync and the async client."""

from __future__ import annotations

import pytest

from onceward import AsyncOnce, Once, StoreUnavailable
from onceward.protocol.requests import Answer
from onceward.protocol.runtime import Runtime
from onceward.stores import MemoryStore


class Unreachable(MemoryStore):
    """Cannot be opened, or is open and answers no claim."""

    def __init__(self, *, opens: bool) -> None:
        super().__init__()
        self._opens = opens

    async def open(self, runtime: Runtime) -> None:
        if not self._opens:
            raise StoreUnavailable("it is down", hint="start it")
        await super().open(runtime)

    async def claim(self, *_requests: object, **_how: object) -> list[Answer]:
        raise StoreUnavailable("it is down", hint="start it")


async def work() -> None: ...


@pytest.mark.parametrize("opens", [True, False])
async def test_of_a_claim(opens: bool) -> None:
    with pytest.raises(StoreUnavailable, match=r"it is down \[key order:77\] → start it") as raised:
        await AsyncOnce(Unreachable(opens=opens)).run("order:77", work)
    assert raised.value.key == "order:77"


@pytest.mark.parametrize("opens", [True, False])
def test_of_a_blocking_claim(opens: bool) -> None:
    with pytest.raises(StoreUnavailable, match=r"\[key order:77\]"):
        Once(Unreachable(opens=opens)).run("order:77", int)
