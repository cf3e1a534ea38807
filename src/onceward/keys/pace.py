"""Where a long computation lets others in, if somebody asked for that: a world that computes beside an event loop.

CPython runs one thread at a time. Who waits for it is let in after `sys.getswitchinterval()`, 5 ms, unless the one that
runs makes a pause. So whatever takes long is done in pieces, and between two of them is a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

Pause = Callable[[], None]

_pause: Final[ContextVar[Pause | None]] = ContextVar("onceward_pause", default=None)

current_pause = _pause.get
"""What to call between two pieces; None if nobody waits for us, so that one piece is as good as many."""


def share(pause: Pause) -> None:
    """From here on, and as long as this context lasts, we are not alone."""
    _pause.set(pause)


def go_on() -> None:
    """The pause of those who are alone."""
