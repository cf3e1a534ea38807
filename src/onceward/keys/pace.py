"""Pauses in long computations, for a runtime that computes in a thread next to an event loop.

CPython runs one thread at a time. A waiting thread gets its turn after `sys.getswitchinterval()`, 5 ms, unless the
running thread pauses earlier. So long computations are done in pieces, with a pause between two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

Pause = Callable[[], None]

_pause: Final[ContextVar[Pause | None]] = ContextVar("onceward_pause", default=None)

current_pause = _pause.get
"""Return the function to call between two pieces; None if pauses are not needed."""


def share(pause: Pause) -> None:
    """Use this pause in the current context."""
    _pause.set(pause)


def go_on() -> None:
    """Do nothing. Used as the pause if none is needed."""
