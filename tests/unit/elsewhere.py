"""Somebody else: another worker on the same data, in a thread of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.faces import TOO_LONG, Face, Pause


@contextlib.contextmanager
def owned(face: Face, key: Any, **settings: Any) -> Iterator[None]:
    """Somebody else has the key until the block ends, and then completes it."""
    pause = Pause()

    def hold() -> None:
        with face.another().claim(key, **settings):
            pause.here()

    other = face.start(hold)
    pause.reached()
    try:
        yield
    finally:
        pause.go()
        other.result(TOO_LONG)
