"""Queue merges of this process into one file without indexes, so that they run one after the other."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any, Final
from weakref import WeakValueDictionary

from .duck_url import MEMORY, DuckAddress

_QUEUES: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
_CREATION_LOCK: Final = threading.Lock()


def merge_queue(address: DuckAddress) -> AbstractContextManager[Any]:
    """Return the lock of the file, shared by all warehouses on it, and reentrant. A memory database is not shared."""
    new = threading.RLock()
    if address.path == MEMORY:
        return new
    with _CREATION_LOCK:
        queue: AbstractContextManager[Any] = _QUEUES.setdefault(os.path.realpath(address.path), new)
        return queue
