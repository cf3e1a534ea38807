"""Run a client's sync-agnostic flows from the consumer's event loop, for sync and async clients."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from onceward.runtime.bridge import run

T = TypeVar("T")


class FlowRunner:
    """Runs flows on the event loop if `threads` is 0 (async clients), otherwise in threads, where they may block."""

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
        """Stop accepting flows. Flows that are already running in a thread continue."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
