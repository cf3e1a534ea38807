"""Switch off the garbage collector where a test traces single steps.

Otherwise it may run in the middle of any step and finish objects that other tests left behind: it calls `__del__` and
closes coroutines.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def resting() -> Iterator[None]:
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
