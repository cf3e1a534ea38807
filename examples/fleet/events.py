"""What an event says whatever its shape: what it is about, what makes it one event, and where it stands in time."""

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


class Reported(Struct, kw_only=True, rename="camel"):
    """The members that all shapes share. Times are texts as in RFC 3339."""

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
        """What stays the same when the event is published again: its own id, or what identifies it."""
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
        """By the best clock that is known."""
        return self.produced_at or self.published_at or self.timestamp or published


def document_id(*parts: str | None) -> str:
    """`env__service[__region]`. Underscores inside a part are escaped, so that no two documents share an id."""
    there = [part.strip().lower() for part in parts if part]
    return SEPARATOR.join(part.replace("%", "%25").replace("_", "%5F") for part in there)


class Documents:
    """One kind of documents in a state, all from one topic."""

    def __init__(self, state: AsyncLatestState[Document], topic: str) -> None:
        self.state = state
        self._topic = topic

    async def keep(self, message: PushMessage[Any], about: str, kind: str, facts: Document) -> Outcome[Document]:
        """The document of what this event is about, unless a newer one is known. Claim and write are one step.

        An event that tells of a later heartbeat stands where that one does: nothing older may hide it. Which message
        brought it is no part of what it says: published again, it is the same event.
        """
        event: Reported = message.payload
        updated = event.happened(message.published_at)
        heartbeat = event.last_heartbeat_at or updated
        newest = max((time for time in (updated, heartbeat) if time), key=_instant, default=None)
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
            Ordering(newest, event.sequence, message.published_at, message.id),
            {**document, "source": source},
            event_id=document_id(event.env) + SEPARATOR + document["eventId"],
            payload=document,
        )


def _instant(time: str) -> tuple[int, int]:
    return instant(time, "time")


Handler = Callable[[PushMessage[Any]], Any]
