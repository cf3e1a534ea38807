"""`Once` and `AsyncOnce`: the objects that applications create. They combine everything below them.

Read `base.py` first (configuration, and how jobs are built), then `sync.py`, `administration.py` and
`base_features.py`. `aio.py` and `async_administration.py` mirror them for asyncio; `features.py` makes sync methods
from the async ones.
"""

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .aio import AsyncOnce
    from .sync import Once

if not TYPE_CHECKING:  # a type checker then knows exactly these names
    __getattr__ = lazy_exports(__name__, {"AsyncOnce": ".aio", "Once": ".sync"})

__all__ = ["AsyncOnce", "Once"]
