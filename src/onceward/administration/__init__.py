"""What operators read and change: one implementation for the command line, the console, Django's admin and MCP.

First read `admin.py`: `Admin` has one method per question, and `preview` and `apply` for changes. `model.py` holds what
these methods return. `actions.py` says which record an action may change, and how. All methods are `async`: with a
sync client, drive them with `run` (`run(admin.overview())`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from onceward.protocol.listing import ListingFilter
    from onceward.runtime.threads import run

    from .actions import Action
    from .admin import Admin
    from .bulk import Applied, Preview, Target
    from .redaction import Redaction
    from .visible import Visible

__all__ = ["Action", "Admin", "Applied", "ListingFilter", "Preview", "Redaction", "Target", "Visible", "run"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Action": ".actions",
        "Admin": ".admin",
        "Applied": ".bulk",
        "ListingFilter": "onceward.protocol.listing",
        "Preview": ".bulk",
        "Redaction": ".redaction",
        "Target": ".bulk",
        "Visible": ".visible",
        "run": "onceward.runtime.threads",
    },
)
