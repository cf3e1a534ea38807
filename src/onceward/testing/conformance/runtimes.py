"""The two colours of a check. Its body is one `async def`; a colour says how that is run, and what "at once" means."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from onceward.protocol.runtime import Runtime
from onceward.runtime import bridge
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime

T = TypeVar("T")

Job = Callable[[], Coroutine[Any, Any, T]]

PATIENCE = 60.0
"""Seconds until a race that does not end counts as a deadlock: far beyond what the slowest machine needs."""


class RuntimeKind(Protocol):
    """How a check is run: `world` makes one for each store, `leave` ends it, `together` runs jobs at the same time.

    The results of jobs come in their order, or else the first of their errors is raised.
    """

    def run(self, body: Coroutine[Any, Any, T]) -> T: ...
    def runtime(self) -> Runtime: ...
    def leave(self, runtime: Runtime) -> None: ...
    async def together(self, jobs: Sequence[Job[T]]) -> list[T]: ...


class Blocking:
    """Driven by the bridge; jobs are threads."""

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        return bridge.run(body)

    def runtime(self) -> Runtime:
        return ThreadRuntime()

    def leave(self, runtime: Runtime) -> None: ...

    async def together(self, jobs: Sequence[Job[T]]) -> list[T]:
        results: dict[int, T] = {}
        errors: list[BaseException] = []
        start = threading.Barrier(len(jobs))

        def work(number: int, job: Job[T]) -> None:
            try:
                start.wait(PATIENCE)
                results[number] = bridge.run(job())
            except BaseException as error:  # noqa: BLE001 (raised again below, on the thread of the check)
                errors.append(error)

        threads = [threading.Thread(target=work, args=one, daemon=True) for one in enumerate(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"deadlock: a call is still waiting after {PATIENCE:g} s"
        if errors:
            raise errors[0]
        return [results[number] for number in range(len(jobs))]


class Looping:
    """Driven by an event loop; jobs are tasks."""

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(body)

    def runtime(self) -> Runtime:
        return AsyncioRuntime()

    def leave(self, runtime: Runtime) -> None:
        if isinstance(runtime, AsyncioRuntime):
            runtime.close()

    async def together(self, jobs: Sequence[Job[T]]) -> list[T]:
        everything: Awaitable[list[T]] = asyncio.gather(*(job() for job in jobs))
        try:
            return await asyncio.wait_for(everything, PATIENCE)
        except TimeoutError:
            raise AssertionError(f"deadlock: a call is still waiting after {PATIENCE:g} s") from None


COLOURS: dict[str, RuntimeKind] = {"blocking": Blocking(), "asyncio": Looping()}
