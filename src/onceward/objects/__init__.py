"""Object storage for work that comes again: objects are created, never overwritten, and known by their content."""

from __future__ import annotations

from .names import safe_name
from .objects import Objects
from .opening import open_objects
from .place import Deleted, Put, Status

__all__ = ["Deleted", "Objects", "Put", "Status", "open_objects", "safe_name"]
