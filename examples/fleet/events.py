"""What all events have in common: their subject, their identity, and their order in time."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from onceward import Outcome
from onceward.http.push import PushMessage
from onceward.latest import Ordering
from onceward.latest.api import AsyncLatestState
from onceward.protocol.ordering import instant

Name = Annotated[str, Meta(pattern=r"\S")]
Document = dict[str, Any]

SEPARATOR = "__"


class BaseEvent(Struct, kw_only=True, rename="camel"):
    """The fields that all events share. Times are texts as in RFC 3339."""

    env: Name
    status: Name
    version: str | None = None
    region: str | None = None
    event_id: str | None = None
    event_type: str | None = None
    schema_version: str | int | None = None
    produced_at: str | None = None
    published_at: str | None = None
    timestamp: str | None = None
    last_heartbeat_at: str | None = None
    sequence: int | None = None

    def logical_key(self, about: str, kind: str) -> str:
        """Return what stays the same when the event is published again: its own id, or a hash of its identity."""
        if self.event_id:
            return self.event_id
        identity = {
            "schema": self.schema_version or "unknown",
            "type": self.event_type or kind,
            "service": about,
            "producedAt": self.produced_at or self.timestamp or "",
            "region": self.region or "",
        }
        canonical = msgspec.json.encode(identity, order="sorted")
        return b32encode(hashlib.sha256(canonical).digest()).decode().rstrip("=")

    def happened(self, published: str | None) -> str | None:
        """Return the event time from the best clock available."""
        return self.produced_at or self.published_at or self.timestamp or published


def document_id(*parts: str | None) -> str:
    """Return `env__service[__region]`. Underscores in a part are escaped, so that no two documents share an id."""
    present = [part.strip().lower() for part in parts if part]
    return SEPARATOR.join(part.replace("%", "%25").replace("_", "%5F") for part in present)


class Documents:
    """One kind of document in a state, all from one topic."""

    def __init__(self, state: AsyncLatestState[Document], topic: str) -> None:
        self.state = state
        self._topic = topic

    async def apply(self, message: PushMessage[Any], about: str, kind: str, facts: Document) -> Outcome[Document]:
        """Write the document of the event's subject, unless a newer one is stored. Claim and write are one step.

        An event that reports a later heartbeat is ordered by that heartbeat, so that nothing older hides it. The
        message id is not part of the payload: an event that is published again stays the same event.
        """
        event: BaseEvent = message.payload
        updated = event.happened(message.published_at)
        heartbeat = event.last_heartbeat_at or updated
        latest = max((time for time in (updated, heartbeat) if time), key=_instant, default=None)
        document = {
            **facts,
            "env": event.env,
            "region": event.region,
            "status": event.status,
            "version": event.version,
            "lastHeartbeatAt": heartbeat,
            "updatedAt": updated,
            "eventId": event.logical_key(about, kind),
        }
        source = {"topic": self._topic, "messageId": message.id, "publishedAt": message.published_at}
        return await self.state.apply(
            document_id(event.env, about, event.region),
            Ordering(latest, event.sequence, message.published_at, message.id),
            {**document, "source": source},
            event_id=document_id(event.env) + SEPARATOR + document["eventId"],
            payload=document,
        )


def _instant(time: str) -> tuple[int, int]:
    return instant(time, "time")


Handler = Callable[[PushMessage[Any]], Any]
