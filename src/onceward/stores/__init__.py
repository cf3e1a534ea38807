"""The stores that hold records. `open_store(url)` returns the store for a URL; each store is a package of its own.

Read `memory/store.py` first: it applies the state table to a dict. `registry.py` maps URL schemes to stores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .memory import MemoryStore
    from .registry import open_store

_MODULES = {
    "MemoryStore": ".memory",
    "open_store": ".registry",
}
"""Where each public name is defined. Imported on first use, so that `import onceward` stays fast."""


if not TYPE_CHECKING:  # a type checker then knows exactly these names

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return getattr(import_module(_MODULES[name], __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["MemoryStore", "open_store"]
