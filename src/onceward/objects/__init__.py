"""Object storage for repeatable work: objects are created, never overwritten, and compared by their content.

Read `objects.py` first. `folder.py` and `cloud.py` are the backends.
"""

from __future__ import annotations

from .backend import Deleted, Put, Status
from .names import safe_name
from .objects import Objects
from .open_objects import open_objects

__all__ = ["Deleted", "Objects", "Put", "Status", "open_objects", "safe_name"]
