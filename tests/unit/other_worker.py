"""Another worker on the same data, in a thread of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.clients import TOO_LONG, Pause, SyncClient


@contextlib.contextmanager
def owned(client: SyncClient, key: Any, **settings: Any) -> Iterator[None]:
    """Let another worker own the key until the block ends, and then complete it."""
    pause = Pause()

    def hold() -> None:
        with client.another().claim(key, **settings):
            pause.here()

    other = client.start(hold)
    pause.reached()
    try:
        yield
    finally:
        pause.go()
        other.result(TOO_LONG)
