"""Object storage for work that comes again: objects are created, never overwritten, and known by their content."""

from __future__ import annotations

from .backend import Deleted, Put, Status
from .names import safe_name
from .objects import Objects
from .open_objects import open_objects

__all__ = ["Deleted", "Objects", "Put", "Status", "open_objects", "safe_name"]
