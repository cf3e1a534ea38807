"""What a push brings, read without trusting it: the message around the data, then the JSON object in the data.

Two things may be wrong, and they are not the same. What is no envelope, or has no id, is nobody's message: 400. A good
envelope around data that nobody can read is a message that will never be read: it is recorded, and not sent again.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import msgspec

from .messages import InboundRequest

T = TypeVar("T")

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
NEEDED = ("id", "source", "specversion", "type")


class PushMessage(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What a handler gets. `payload` is the JSON object, or what the route's shape made of it; empty without any data.

    `published_at` is the broker's time (of a CloudEvent its `time`), `source` the subscription (its `source`).
    """

    id: str
    payload: T
    attributes: dict[str, str]
    data: bytes
    published_at: str | None = None
    ordering_key: str = ""
    source: str = ""
    delivery_attempt: int | None = None


class Envelope(msgspec.Struct, frozen=True):
    """A message whose data is not understood yet. `key` names it; `payload` is what its redelivery must have, too."""

    key: Any
    message: PushMessage[Any]
    payload: dict[str, Any]
    trouble: str = ""

    def opened(self) -> PushMessage[Any] | str:
        """The message with its JSON object, or why there is none."""
        if self.trouble:
            return self.trouble
        if not self.message.data and self.message.attributes:  # all that it says is in these
            return msgspec.structs.replace(self.message, payload={})
        try:
            found = msgspec.json.decode(self.message.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            return f"the data is not JSON: {type(error).__name__}"
        if not isinstance(found, dict):
            return f"the data is no JSON object, but {type(found).__name__}"
        return msgspec.structs.replace(self.message, payload=found)


class _PubSubMessage(msgspec.Struct):
    id: str | None = msgspec.field(name="messageId", default=None)
    older_id: str | None = msgspec.field(name="message_id", default=None)
    published: str | None = msgspec.field(name="publishTime", default=None)
    older_published: str | None = msgspec.field(name="publish_time", default=None)
    ordering: str | None = msgspec.field(name="orderingKey", default=None)
    attributes: dict[str, str] | None = None
    data: str | None = None


class _PubSubEnvelope(msgspec.Struct):
    message: _PubSubMessage
    subscription: str | None = None
    attempt: int | None = msgspec.field(name="deliveryAttempt", default=None)


_read = msgspec.json.Decoder(_PubSubEnvelope).decode  # now: two first readers at once would crash the process


def pubsub(request: InboundRequest) -> Envelope | str:
    """A Pub/Sub push. The message id may be written `messageId` or `message_id`."""
    try:
        found = _read(request.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "this is no Pub/Sub envelope"
    inner = found.message
    id = inner.id or inner.older_id
    if not id:
        return "the message has no messageId"
    data, trouble = _unpacked(inner.data or "")
    attributes = inner.attributes or {}
    message = PushMessage(
        id=id,
        payload=None,
        attributes=attributes,
        data=data,
        published_at=inner.published or inner.older_published,
        ordering_key=inner.ordering or "",
        source=found.subscription or "",
        delivery_attempt=found.attempt,
    )
    return Envelope(id, message, {"data": inner.data or "", "attributes": attributes}, trouble)


def cloudevent(request: InboundRequest) -> Envelope | str:
    """A CloudEvent over HTTP, structured or binary. It is known by its source and its id."""
    media = request.media_type()
    if media == BATCHED:
        return "batches of CloudEvents are not taken: send one a request"
    if media == STRUCTURED:
        return _structured(request)
    attributes = {name[3:]: _text(value) for name, value in request.headers().items() if name.startswith("ce-")}
    is_json = media in ("", "application/json", "text/json") or media.endswith("+json")
    return _cloudevent(attributes, request.body, "" if is_json else "the data is not JSON by its content type")


def _structured(request: InboundRequest) -> Envelope | str:
    try:
        members = msgspec.json.decode(request.body, type=dict[str, msgspec.Raw])
        data, packed = members.pop("data", None), members.pop("data_base64", None)
        attributes = {name: _scalar(value) for name, value in members.items()}
        text = "" if packed is None else msgspec.json.decode(packed, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "this is no CloudEvent"
    if data is not None or packed is None:
        return _cloudevent(attributes, b"" if data is None else bytes(data), "")
    return _cloudevent(attributes, *_unpacked(text))


def _cloudevent(attributes: dict[str, str], data: bytes, trouble: str) -> Envelope | str:
    missing = [name for name in NEEDED if not attributes.get(name)]
    if missing:
        return f"the CloudEvent has no {missing[0]}"
    if not (_is_text(attributes["id"]) and _is_text(attributes["source"])):
        return "what names the CloudEvent is no text"
    message = PushMessage(
        id=attributes["id"],
        payload=None,
        attributes=attributes,
        data=data,
        published_at=attributes.get("time") or None,
        ordering_key=attributes.get("partitionkey", ""),
        source=attributes["source"],
    )
    # Only the data: every hop may add attributes of its own, such as those of a trace.
    return Envelope((attributes["source"], attributes["id"]), message, {"data": data}, trouble)


def _unpacked(text: str) -> tuple[bytes, str]:
    try:
        return base64.b64decode(text, validate=True), ""
    except (binascii.Error, ValueError):  # ValueError: not even ASCII
        return b"", "the data is not base64"


def _is_text(value: str) -> bool:
    """Not so with a lone surrogate, of a header that somebody decoded as what it is not."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scalar(raw: msgspec.Raw) -> str:
    """An attribute as its header would have it: its type is a text, a number or a boolean."""
    value = msgspec.json.decode(raw, type=str | int | bool | None)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _text(value: str) -> str:
    """A header of the binary mode: what is not ASCII is percent-encoded."""
    return unquote(value.removeprefix('"').removesuffix('"') if value.startswith('"') else value)
