"""The stores that hold records. `open_store(url)` returns the store for a URL; each store is a package of its own.

Read `memory/store.py` first: it applies the state table to a dict. `registry.py` maps URL schemes to stores.
"""

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .memory import MemoryStore
    from .registry import open_store

if not TYPE_CHECKING:  # a type checker then knows exactly these names
    __getattr__ = lazy_exports(__name__, {"MemoryStore": ".memory", "open_store": ".registry"})

__all__ = ["MemoryStore", "open_store"]
