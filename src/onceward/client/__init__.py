"""`Once` and `AsyncOnce`: the objects that applications create. They combine everything below them.

Read `base.py` first (configuration, and how jobs are built), then `sync.py` and `administration.py`; `aio.py` and
`async_administration.py` mirror them for asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aio import AsyncOnce
    from .sync import Once

_HOMES = {
    "AsyncOnce": ".aio",
    "Once": ".sync",
}
"""Where each public name is defined. Imported on first use, so that sync programs do not load asyncio."""


if not TYPE_CHECKING:  # a type checker then knows exactly these names

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(_HOMES[name], __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["AsyncOnce", "Once"]
