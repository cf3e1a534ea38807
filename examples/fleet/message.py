"""A Pub/Sub message with the health of one service: who it is about, where it stands, and what makes it one event."""

from __future__ import annotations

import hashlib
import json
from base64 import b32encode
from typing import Any

from msgspec import Struct

from onceward import Ordering

SEPARATOR = "__"


class Message(Struct, frozen=True):
    """As the transport delivers it. A retry has the same id; what is published again has another."""

    id: str
    published_at: str
    payload: dict[str, Any]


def service_id(env: str, service: str, region: str = "") -> str:
    """`env__service[__region]`. Underscores inside a part are escaped, so that no two services share an id."""
    parts = [env, service, *([region] if region else [])]
    return SEPARATOR.join(part.replace("%", "%25").replace("_", "%5F") for part in parts)


def event_id(payload: dict[str, Any]) -> str:
    """What stays the same when an event is published again: its own id, or what identifies it."""
    if payload.get("eventId"):
        return str(payload["eventId"])
    identity = {
        "schema": payload.get("schemaVersion") or "unknown",
        "type": payload.get("eventType") or "system_event",
        "service": payload["service"],
        "producedAt": payload.get("producedAt") or payload.get("timestamp") or "",
        "region": payload.get("region") or "",
    }
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return b32encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def ordering(message: Message) -> Ordering:
    """When it happened, by the best clock that is known; then the producer's count, then the transport's."""
    payload = message.payload
    times = (payload.get(name) for name in ("producedAt", "publishedAt", "timestamp"))
    happened = next((time for time in times if time), message.published_at)
    return Ordering(happened, payload.get("sequence"), message.published_at, message.id)
