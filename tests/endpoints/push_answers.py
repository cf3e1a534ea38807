"""The usual responses to a broker, and a handler that records its messages."""

from __future__ import annotations

from typing import Any

from onceward.http.push import PushMessage
from tests.endpoints.helpers import BlockingEndpoint

APPLIED = (200, {"applied": True, "reason": "applied"})
DUPLICATE = (200, {"applied": False, "reason": "duplicate_message_noop"})


def counting(endpoint: BlockingEndpoint, *args: Any, **kwargs: Any) -> list[PushMessage[Any]]:
    """Register a handler that records its messages."""
    seen: list[PushMessage[Any]] = []
    endpoint.on(*args, **kwargs)(seen.append)
    return seen
