"""The runtime of sync clients: every call runs in the caller's thread, and waiting blocks it.

The flows of Onceward are coroutines, for sync and async clients alike. On this runtime they never suspend, so `run`
needs no event loop.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

from onceward.errors import WrongRuntime
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.runtime import Send

from .thread_batcher import ThreadBatcher

T = TypeVar("T")

POLL_INTERVAL = 0.5
"""Seconds between two checks of whether a sleep should end: a signal handler may call `stop()`, but cannot safely
notify a sleeping thread."""


def run(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of Onceward without an event loop, and return its result.

    Args:
        call: A coroutine that never suspends: one of a sync client's flows, such as `admin.overview()`.

    Raises:
        WrongRuntime: The coroutine waits for an event loop. Its store works only with `AsyncOnce`.
    """
    try:
        call.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # not in a variable: a failure's traceback would make a cycle
    call.close()
    raise WrongRuntime(
        "a sync call tried to wait on an event loop", hint="this store works only with AsyncOnce, not with Once"
    )


_numbers = count()


def _renew_numbers() -> None:
    global _numbers  # noqa: PLW0603 (faster than an object)
    _numbers = count(int.from_bytes(os.urandom(10), "big") << 48)


def nonce() -> bytes:
    """Return the random id of one claim call, for both runtimes.

    It is a random prefix and a counter: as unique as 16 random bytes, and ten times faster. A forked process gets a
    new prefix.
    """
    return next(_numbers).to_bytes(16, "big")


_renew_numbers()
call_in_forked_child(_renew_numbers)


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
        """Return None: a thread cannot be cancelled, so its work calls `claim.check()`."""

    def gate(self) -> ThreadGate:
        return ThreadGate()

    def batcher(self, send: Send, *, max_in_flight: int = 1) -> ThreadBatcher:  # noqa: ARG002 (see below)
        """Return a batcher. `max_in_flight` has no effect: more calls at once would only compete with each other."""
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
