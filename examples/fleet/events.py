"""What all events have in common: their subject, their identity, and their order in time."""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from onceward import Outcome
from onceward.http.push import PushMessage
from onceward.latest import DerivedId, Ordering
from onceward.latest.api import AsyncLatestState
from onceward.protocol.ordering import instant

Name = Annotated[str, Meta(pattern=r"\S")]
Document = dict[str, Any]

SEPARATOR = "__"
AMBIGUOUS = re.compile("^_+|__+|_+$")
TRANSPORT = ("publishedAt", "eventId")
"""Fields that say how an event was delivered, not what happened."""


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

    def content(self, facts: Document) -> Document:
        """Return what the event says, without the fields that change when it is published again."""
        said = msgspec.to_builtins(self)
        return {**facts, **{name: value for name, value in said.items() if name not in TRANSPORT}}

    def logical_key(self, about: str, kind: str) -> str | None:
        """Return what stays the same when the event is published again: its own id, or a hash of its identity.

        An event with neither an id nor a time of its own has no identity beyond its message.
        """
        if self.event_id:
            return self.event_id
        if not (self.produced_at or self.timestamp):
            return None
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
    """Return `env__service[__region]`. No two documents share an id.

    In a part, only underscores that could be taken for a separator are escaped: at its ends, and beside each other.
    """
    return SEPARATOR.join(_normalized(part) for part in parts if part)


def _normalized(part: str) -> str:
    return AMBIGUOUS.sub(lambda found: "%5F" * len(found[0]), part.strip().lower().replace("%", "%25"))


class Documents:
    """One kind of document in a state. `topics` maps subscriptions to topics."""

    def __init__(self, state: AsyncLatestState[Document], topics: Mapping[str, str], *, per_region: bool) -> None:
        self.state = state
        self._topics = topics
        self._per_region = per_region

    async def apply(self, message: PushMessage[Any], about: str, kind: str, facts: Document) -> Outcome[Document]:
        """Write the document of the event's subject, unless a newer one is stored. Claim and write are one step.

        An event that reports a later heartbeat is ordered by that heartbeat, so that nothing older hides it. Times and
        ids of the transport are not part of the content: an event that is published again stays the same event.
        """
        event: BaseEvent = message.payload
        content = event.content(facts)
        key = event.logical_key(about, kind)
        updated = event.happened(message.published_at)
        heartbeat = event.last_heartbeat_at or updated
        latest = max((time for time in (updated, heartbeat) if time), key=_instant, default=None)
        document = {
            **facts,
            "env": event.env,
            "region": event.region,
            "status": event.status,
            "version": event.version,
            "sequence": event.sequence,
            "lastHeartbeatAt": heartbeat,
            "updatedAt": updated,
            "eventId": key,
            "source": {"topic": self._topic(message), "messageId": message.id, "publishedAt": message.published_at},
        }
        return await self.state.apply(
            document_id(event.env, about, event.region if self._per_region else None),
            Ordering(latest, event.sequence, message.published_at, message.id),
            document,
            event_id=_event_id(event, key),
            payload=content,
        )

    def _topic(self, message: PushMessage[Any]) -> str:
        """Return the topic of the message's subscription: as configured, as its publisher says, or the subscription."""
        subscription = message.source.rpartition("/")[2]
        named = self._topics.get(message.source) or self._topics.get(subscription)
        return named or message.attributes.get("topic") or subscription


def _event_id(event: BaseEvent, key: str | None) -> str | DerivedId | None:
    """Return `env__logicalKey`. Two different reports with the same derived key are two events."""
    if key is None:
        return None
    text = document_id(event.env) + SEPARATOR + key
    return text if event.event_id else DerivedId(text)


def _instant(time: str) -> tuple[int, int]:
    return instant(time, "time")


Handler = Callable[[PushMessage[Any]], Any]
