"""Both places, and both colours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward.objects import Objects
from tests.objects import backends


@pytest.fixture(scope="session", autouse=True)
def _server_ends() -> Iterator[None]:
    yield
    backends.end()


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return backends.place_of(request.param, tmp_path)


class InTurn:
    """`AsyncObjects`, each call on an event loop of its own, so that one test body does for both colours."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects.aio

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._objects, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            return asyncio.run(_collected(answer) if hasattr(answer, "__aiter__") else answer)

        return call


async def _collected(pieces: Any) -> list[bytes]:
    return [piece async for piece in pieces]


@pytest.fixture(params=["folder", "s3", "async folder"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The async face runs the blocking one in threads, so one place will do for it."""
    mode, _, kind = request.param.rpartition(" ")
    opened = backends.opened(backends.place_of(kind, tmp_path))
    return InTurn(opened) if mode else opened
