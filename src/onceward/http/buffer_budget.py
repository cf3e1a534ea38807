"""Limit the total memory that the request bodies of one endpoint use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from onceward.errors import ConfigurationError

MAX_BUFFERED: Final = 64 * 1024 * 1024
"""Default limit, in bytes."""

UNCOUNTED: Final = 64 * 1024
"""Bytes of each body that are not counted, so that large bodies cannot block small ones."""


class BufferBudget:
    """The total bytes that all bodies may use, without the first 64 KiB of each. Thread-safe."""

    def __init__(self, limit: int | None, largest: int) -> None:
        """`largest` is the limit of a single body, which must fit."""
        if limit is not None and limit < largest:
            raise ConfigurationError(
                f"max_buffered={limit} is less than limit={largest}: a body of the allowed size would never fit",
                hint="raise max_buffered, or lower limit",
            )
        self._limit = max(MAX_BUFFERED, largest) if limit is None else limit
        self._used = 0
        self._lock = threading.Lock()

    @contextmanager
    def hold(self) -> Iterator[HeldBytes]:
        """Count the body of one request until the block ends."""
        held = HeldBytes(self)
        try:
            yield held
        finally:
            self.take(-held.counted)

    def take(self, size: int) -> bool:
        """Count `size` more bytes and return True. If they do not fit, count nothing and return False."""
        with self._lock:
            if size > 0 and self._used + size > self._limit:
                return False
            self._used += size
            return True


class HeldBytes:
    """The bytes of one body."""

    __slots__ = ("_budget", "_size", "counted")

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self._size = 0
        self.counted = 0

    def add(self, size: int) -> bool:
        """Return whether `size` more bytes fit."""
        self._size += size
        more = max(0, self._size - UNCOUNTED) - self.counted
        if not self._budget.take(more):
            return False
        self.counted += more
        return True
