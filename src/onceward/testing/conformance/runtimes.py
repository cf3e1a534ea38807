"""The two runtimes of a check: sync with threads, and asyncio with tasks. The body of the check is one `async def`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from onceward.protocol.runtime import Runtime
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run

T = TypeVar("T")

Job = Callable[[], Coroutine[Any, Any, T]]

DEADLOCK_TIMEOUT = 60.0
"""Seconds after which a race counts as a deadlock: much longer than the slowest machine needs."""


class SyncRuntimeKind:
    """Runs the body without an event loop; jobs are threads.

    `new_runtime` returns a runtime for a store. `run_concurrently` returns the results in the order of the jobs, or
    raises the first error.
    """

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        return run(body)

    def new_runtime(self) -> Runtime:
        return ThreadRuntime()

    def close_runtime(self, runtime: Runtime) -> None: ...

    async def run_concurrently(self, jobs: Sequence[Job[T]]) -> list[T]:
        results: dict[int, T] = {}
        errors: list[BaseException] = []
        start = threading.Barrier(len(jobs))

        def work(number: int, job: Job[T]) -> None:
            try:
                start.wait(DEADLOCK_TIMEOUT)
                results[number] = run(job())
            except BaseException as error:  # noqa: BLE001 (raised again below, in the thread of the check)
                errors.append(error)

        threads = [threading.Thread(target=work, args=one, daemon=True) for one in enumerate(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLOCK_TIMEOUT)
            assert not thread.is_alive(), f"deadlock: a call is still waiting after {DEADLOCK_TIMEOUT:g} s"
        if errors:
            raise errors[0]
        return [results[number] for number in range(len(jobs))]


class AsyncRuntimeKind:
    """Runs the body in an event loop; jobs are tasks."""

    def run(self, body: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(body)

    def new_runtime(self) -> Runtime:
        return AsyncioRuntime()

    def close_runtime(self, runtime: Runtime) -> None:
        if isinstance(runtime, AsyncioRuntime):
            runtime.close()

    async def run_concurrently(self, jobs: Sequence[Job[T]]) -> list[T]:
        everything: Awaitable[list[T]] = asyncio.gather(*(job() for job in jobs))
        try:
            return await asyncio.wait_for(everything, DEADLOCK_TIMEOUT)
        except TimeoutError:
            raise AssertionError(f"deadlock: a call is still waiting after {DEADLOCK_TIMEOUT:g} s") from None


RuntimeKind = SyncRuntimeKind | AsyncRuntimeKind
RUNTIME_KINDS: dict[str, RuntimeKind] = {"blocking": SyncRuntimeKind(), "asyncio": AsyncRuntimeKind()}
