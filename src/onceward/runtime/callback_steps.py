"""A coroutine that is run by callbacks of the loop instead of a task of its own, which costs some turns of the loop.

It may wait for futures only: what asks for its task, as `asyncio.timeout` does, needs one. Whatever is raised in it is
its own to handle; nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Count:
    """Of steps."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


class CallbackTask:
    """The steps of one coroutine, from one wait to the next. It is given their count, and does not know us.

    If a signal strikes in a step, the coroutine is closed: there it learns that it will not go on. If it strikes where
    the next step was to be called, nobody knows us any more, and Python closes it.
    """

    __slots__ = ("_count", "_over", "_work")

    def __init__(self, work: Callable[[Count], Coroutine[Any, Any, None]]) -> None:
        self._count, self._over = Count(), False
        self._work = work(self._count)

    def step(self, _: object = None) -> None:
        try:
            self._count.steps += 1
            try:
                wanted = self._work.send(None)
            except (StopIteration, asyncio.CancelledError):
                return
            if wanted is None:  # only a turn for others
                asyncio.get_running_loop().call_soon(self.step)
                return
            wanted._asyncio_future_blocking = False  # noqa: SLF001 (as tasks do: it was waited for in the right way)
            promptly = getattr(wanted, "promptly", None)
            if promptly is None:
                wanted.add_done_callback(self.step)
            else:
                promptly(self.step)
        except BaseException:
            if self._over:  # closed below, and yet called once more
                return
            self._over = True
            self._work.close()
            raise
