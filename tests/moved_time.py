"""Time and event loops for tests: time that a fake clock moves, and a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime
from onceward.testing.clock import FakeClock

TOO_LONG = 60.0
"""Seconds after which a test that waits for another thread gives up: before pytest's own limit."""


class RealClock(FakeClock):
    """Real time, for the few tests that need it."""

    def now(self) -> int:
        return time.time_ns() // 1_000


class MovedThreads(ThreadRuntime):
    """Threads whose time moves with a fake clock as well."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return time.monotonic() + self._clock.elapsed / 1_000_000


class MovedLoop(AsyncioRuntime):
    """An event loop whose time moves with a fake clock as well."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def monotonic(self) -> float:
        return time.monotonic() + self._clock.elapsed / 1_000_000


def in_thread(call: Callable[..., Any], *args: Any) -> Future[Any]:
    """Call it in a daemon thread: a thread left behind by a failed test must not delay the end of the process."""
    done: Future[Any] = Future()

    def work() -> None:
        try:
            done.set_result(call(*args))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="test", daemon=True).start()
    return done


class LoopThread:
    """An event loop in its own thread, to which tests submit calls."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="test-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            with contextlib.suppress(SystemExit, KeyboardInterrupt):  # asyncio lets these two through the loop
                self.loop.run_forever()

    def wait(self, call: Coroutine[Any, Any, Any], context: contextvars.Context | None = None) -> Any:
        done: Future[Any] = Future()
        if context is None:  # an empty one is falsy
            context = contextvars.copy_context()

        def hand_over(task: asyncio.Task[Any]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is None:
                done.set_result(task.result())
            else:
                done.set_exception(error)

        def start() -> None:
            self.loop.create_task(call, context=context).add_done_callback(hand_over)

        self.loop.call_soon_threadsafe(start)
        return done.result(TOO_LONG)

    def close(self) -> None:
        self._closing = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(TOO_LONG)
        self.loop.close()
