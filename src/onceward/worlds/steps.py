"""A coroutine that is run by callbacks of the loop instead of a task of its own, which costs some turns of the loop.

It may wait for futures only: what asks for its task, as `asyncio.timeout` does, needs one. Whatever is raised in it is
its own to handle; nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Steps:
    """The steps of one coroutine, from one wait to the next. It is given these steps, and may `count` them."""

    __slots__ = ("_work", "count")

    def __init__(self, work: Callable[[Steps], Coroutine[Any, Any, None]]) -> None:
        self.count = 0
        self._work = work(self)

    def step(self, _: object = None) -> None:
        self.count += 1
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
