"""Both backends, sync and async."""

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
    return backends.url_of_kind(request.param, tmp_path)


class InTurn:
    """`AsyncObjects`, each call on its own event loop, so that one test body covers sync and async."""

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
    """The async client runs the blocking one in threads, so one backend is enough for it."""
    mode, _, kind = request.param.rpartition(" ")
    opened = backends.opened(backends.url_of_kind(kind, tmp_path))
    return InTurn(opened) if mode else opened
