"""The garbage collector at rest, where a test looks at single steps.

It runs in the middle of any of them, and what other tests left behind ends there: `__del__` is called, and coroutines
are closed.
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
