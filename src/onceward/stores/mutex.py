"""A mutex that raises instead of deadlocking when a signal handler or `__del__` re-enters it on the same thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from onceward.errors import Reentrant

T = TypeVar("T")


class Mutex:
    """Runs one call at a time. The lock is reentrant only so that reentry by its own thread can be detected.

    A `with` on a lock implemented in C leaves no moment at which a signal could raise and leave the lock held.
    """

    __slots__ = ("busy", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.busy = False

    def run(self, work: Callable[..., T], *arguments: Any) -> T:
        with self.lock:
            if self.busy:
                self.refuse()
            self.busy = True
            try:
                return work(*arguments)
            finally:
                self.busy = False

    def refuse(self) -> NoReturn:
        raise Reentrant("a signal handler or __del__ called the store while the same thread was inside a store call")
