"""One thread at a time, without a deadlock when a signal handler or `__del__` comes back into its own thread's call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from onceward.errors import Reentrant

T = TypeVar("T")


class Mutex:
    """Runs one call at a time. Its lock is re-entrant only to notice its own thread coming back in.

    `with` a lock written in C leaves no instant in which a signal could raise and the lock stay held.
    """

    __slots__ = ("busy", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.busy = False

    def __call__(self, work: Callable[..., T], *arguments: Any) -> T:
        with self.lock:
            if self.busy:
                self.refuse()
            self.busy = True
            try:
                return work(*arguments)
            finally:
                self.busy = False

    def refuse(self) -> NoReturn:
        raise Reentrant("a store call interrupted another one of its own thread (signal handler or __del__)")
