"""Where records live. `open_store(url)` finds the right one."""

from .registry import open_store

__all__ = ["open_store"]
