"""The runtime of sync clients: every call runs in the caller's thread, and waiting blocks it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from onceward.errors import WrongRuntime
from onceward.protocol.runtime import Send

from .bridge import run
from .nonce import nonce
from .thread_batcher import ThreadBatcher

T = TypeVar("T")

POLL_INTERVAL = 0.5
"""Seconds between checks whether a sleep should end: `stop()` may be called from a signal handler, which cannot safely
notify a sleeping thread."""


class ThreadGate:
    """Ends a thread's wait early."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        self._event.wait(seconds)
        self._event.clear()


class ThreadRuntime:
    """The runtime of `Once`."""

    supports_cancellation = False
    shielded_type = None

    def check(self) -> None:
        """Raise if an event loop runs in this thread: blocking it would stop every other task on it."""
        asyncio = sys.modules.get("asyncio")
        if asyncio is None:  # not imported, so no loop runs
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise WrongRuntime(
            "Once is sync and was called in the thread of a running event loop, which it would block",
            hint="use AsyncOnce there, or once.aio of this client",
        )

    monotonic = staticmethod(time.monotonic)

    def jitter(self) -> float:
        import random  # imported here: most calls never wait

        return random.random()  # noqa: S311 (not for security)

    nonce = staticmethod(nonce)

    def canceller(self) -> None:
        """Return None: a thread cannot be cancelled; its work calls `claim.check()`."""

    def gate(self) -> ThreadGate:
        return ThreadGate()

    def batcher(self, send: Send, *, max_in_flight: int = 1) -> ThreadBatcher:  # noqa: ARG002 (see below)
        """Return a batcher. `max_in_flight` has no effect: more calls at once would only compete."""
        return ThreadBatcher(send)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (there is no event loop)

    async def wait_for_socket(self, socket: int, *, writing: bool, seconds: float) -> bool:
        import select  # imported here: most stores have no socket

        if not hasattr(select, "poll"):  # Windows
            return any(select.select([socket], [socket] if writing else [], [], max(seconds, 0)))
        poll = select.poll()
        poll.register(socket, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
        return bool(poll.poll(max(seconds, 0) * 1000))

    async def offload(self, call: Callable[..., T], *arguments: Any) -> T:
        return call(*arguments)

    async def compute(self, call: Callable[..., T], *arguments: Any) -> T:
        return call(*arguments)

    async def shield(
        self,
        work: Awaitable[T],
        on_cancel: Callable[[], None] | None = None,  # noqa: ARG002 (no cancellations)
    ) -> tuple[T, BaseException | None]:
        """Run the work. Threads are not cancelled, so `on_cancel` is never called."""
        return await work, None


class ThreadWorkerPool:
    """Runs each piece of work in its own thread."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._wakeup = threading.Event()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=lambda: run(work()), name="onceward-schedule", daemon=True)
        thread.start()
        self._threads.append(thread)

    def wake(self) -> None:
        self._wakeup.set()

    async def sleep(self, seconds: float, stopping: Callable[[], bool]) -> None:
        ends = time.monotonic() + seconds
        while not stopping() and (left := ends - time.monotonic()) > 0:
            if self._wakeup.wait(min(left, POLL_INTERVAL)):
                break
        self._wakeup.clear()

    async def finish(self) -> None:
        for thread in self._threads:
            thread.join()
