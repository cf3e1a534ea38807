"""Run a coroutine by callbacks of the event loop. A task of its own would cost some loop iterations.

The coroutine may only await futures: code that needs the current task, like `asyncio.timeout`, does not work in it. It
must handle its own exceptions; no caller waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class StepCount:
    """How many steps a coroutine has made."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


class CallbackTask:
    """Runs one coroutine step by step, from one await to the next. The coroutine gets the step count.

    If a signal handler raises in a step, the coroutine is closed: GeneratorExit tells it that it will not continue. If
    that happens before the next step is scheduled, nothing refers to this object, and Python closes the coroutine.
    """

    __slots__ = ("_closed", "_count", "_work")

    def __init__(self, work: Callable[[StepCount], Coroutine[Any, Any, None]]) -> None:
        self._count, self._closed = StepCount(), False
        self._work = work(self._count)

    def step(self, _: object = None) -> None:
        try:
            self._count.steps += 1
            try:
                wanted = self._work.send(None)
            except (StopIteration, asyncio.CancelledError):
                return
            if wanted is None:  # it only yields to other tasks
                asyncio.get_running_loop().call_soon(self.step)
                return
            wanted._asyncio_future_blocking = False  # noqa: SLF001 (as tasks do: it was awaited correctly)
            promptly = getattr(wanted, "promptly", None)
            if promptly is None:
                wanted.add_done_callback(self.step)
            else:
                promptly(self.step)
        except BaseException:
            if self._closed:  # closed below, and called once more
                return
            self._closed = True
            self._work.close()
            raise
