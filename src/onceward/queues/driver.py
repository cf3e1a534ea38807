"""Runs the colourless flows of a client from a consumer's event loop, whatever the client's own colour is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from onceward.runtime.bridge import run

T = TypeVar("T")


class Driver:
    """Without threads: on the loop, as an async client's flows are. Else each in a thread, so that it may block."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def __call__(self, flow: Coroutine[Any, Any, T]) -> T:
        if not self._threads:
            return await flow
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "onceward-consumer")
        return await asyncio.get_running_loop().run_in_executor(self._pool, run, flow)

    def close(self) -> None:
        """What runs in a thread goes on."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
