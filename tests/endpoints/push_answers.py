"""What a broker is answered most of the time, and a handler that notes what it is given."""

from __future__ import annotations

from typing import Any

from onceward.http.push import PushMessage
from tests.endpoints.stage import Stand

APPLIED = (200, {"applied": True, "reason": "applied"})
DUPLICATE = (200, {"applied": False, "reason": "duplicate_message_noop"})


def counting(stand: Stand, *args: Any, **kwargs: Any) -> list[PushMessage[Any]]:
    """A handler that keeps what it gets."""
    seen: list[PushMessage[Any]] = []
    stand.on(*args, **kwargs)(seen.append)
    return seen
