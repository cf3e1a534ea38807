"""`Once` and `AsyncOnce`: the objects that applications create. They combine everything below them.

Read `base.py` first (configuration, and how jobs are built), then `sync.py`, `base_features.py` and
`async_administration.py`. `aio.py` mirrors `sync.py` for asyncio; `administration.py` and `features.py` make the sync
methods from the async ones.
"""

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .aio import AsyncOnce
    from .sync import Once

if not TYPE_CHECKING:  # a type checker then knows exactly these names
    __getattr__ = lazy_exports(__name__, {"AsyncOnce": ".aio", "Once": ".sync"})

__all__ = ["AsyncOnce", "Once"]
