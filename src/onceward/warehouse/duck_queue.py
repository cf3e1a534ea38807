"""Those of this process who merge into one file without indexes: in line, one after the other."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any, Final
from weakref import WeakValueDictionary

from .duck_url import MEMORY, DuckAddress

_LINES: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
_MAKING: Final = threading.Lock()


def line_of(place: DuckAddress) -> AbstractContextManager[Any]:
    """The same for all who have that file open, and nobody waits for themselves. Memory is shared with nobody."""
    own = threading.RLock()
    if place.path == MEMORY:
        return own
    with _MAKING:
        line: AbstractContextManager[Any] = _LINES.setdefault(os.path.realpath(place.path), own)
        return line
