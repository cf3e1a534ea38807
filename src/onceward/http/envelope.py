"""Parse untrusted push requests: first the envelope around the data, then the JSON object in the data.

Two kinds of errors are handled differently. Without a valid envelope or an id, there is no message: 400. A valid
envelope whose data cannot be decoded is a message that no retry can help: it is recorded, and not sent again.
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
REQUIRED_ATTRIBUTES = ("id", "source", "specversion", "type")


class PushMessage(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The message that a handler gets. `payload` is the JSON object, or the route's type made from it; {} without data.

    `id` is that of the message, `attributes` are those of the sender, and `data` is the body as it was sent.
    `published_at` is the broker's time (for a CloudEvent its `time`), `source` the subscription (its `source`).
    `ordering_key` and `delivery_attempt` are those of Pub/Sub, if they are enabled there.
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
    """A message whose data is not decoded yet. `key` identifies it; a redelivery must have the same `payload`."""

    key: Any
    message: PushMessage[Any]
    payload: dict[str, Any]
    decode_error: str = ""

    def decode(self) -> PushMessage[Any] | str:
        """Return the message with its JSON object, or the reason why it cannot be decoded."""
        if self.decode_error:
            return self.decode_error
        if not self.message.data and self.message.attributes:  # a message may consist of attributes only
            return msgspec.structs.replace(self.message, payload={})
        try:
            found = msgspec.json.decode(self.message.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            return f"the data is not JSON: {type(error).__name__}"
        if not isinstance(found, dict):
            return f"the data is not a JSON object, but {type(found).__name__}"
        return msgspec.structs.replace(self.message, payload=found)


class _PubSubMessage(msgspec.Struct):
    id: str | None = msgspec.field(name="messageId", default=None)
    legacy_id: str | None = msgspec.field(name="message_id", default=None)
    published: str | None = msgspec.field(name="publishTime", default=None)
    legacy_published: str | None = msgspec.field(name="publish_time", default=None)
    ordering: str | None = msgspec.field(name="orderingKey", default=None)
    attributes: dict[str, str] | None = None
    data: str | None = None


class _PubSubEnvelope(msgspec.Struct):
    message: _PubSubMessage
    subscription: str | None = None
    attempt: int | None = msgspec.field(name="deliveryAttempt", default=None)


_decode_pubsub = msgspec.json.Decoder(
    _PubSubEnvelope
).decode  # built at import: two threads that build it at the same time would crash the process


def parse_pubsub(request: InboundRequest) -> Envelope | str:
    """Parse a Pub/Sub push. The message id may be called `messageId` or `message_id`."""
    try:
        found = _decode_pubsub(request.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "the body is not a Pub/Sub envelope"
    inner = found.message
    id = inner.id or inner.legacy_id
    if not id:
        return "the message has no messageId"
    data, decode_error = _decode_base64(inner.data or "")
    attributes = inner.attributes or {}
    message = PushMessage(
        id=id,
        payload=None,
        attributes=attributes,
        data=data,
        published_at=inner.published or inner.legacy_published,
        ordering_key=inner.ordering or "",
        source=found.subscription or "",
        delivery_attempt=found.attempt,
    )
    return Envelope(id, message, {"data": inner.data or "", "attributes": attributes}, decode_error)


def parse_cloudevent(request: InboundRequest) -> Envelope | str:
    """Parse a CloudEvent over HTTP, structured or binary. Source and id together identify it."""
    media = request.media_type()
    if media == BATCHED:
        return "batches of CloudEvents are not supported: send one event per request"
    if media == STRUCTURED:
        return _structured_event(request)
    headers = request.headers().items()
    attributes = {name[3:]: _header_text(name[3:], value) for name, value in headers if name.startswith("ce-")}
    is_json = media in ("", "application/json", "text/json") or media.endswith("+json")
    return _cloudevent(attributes, request.body, "" if is_json else "the content type of the data is not JSON")


def _structured_event(request: InboundRequest) -> Envelope | str:
    try:
        members = msgspec.json.decode(request.body, type=dict[str, msgspec.Raw])
        data, packed = members.pop("data", None), members.pop("data_base64", None)
        attributes = {name: _attribute_text(value) for name, value in members.items()}
        text = "" if packed is None else msgspec.json.decode(packed, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "the body is not a CloudEvent"
    if data is not None or packed is None:
        return _cloudevent(attributes, b"" if data is None else bytes(data), "")
    return _cloudevent(attributes, *_decode_base64(text))


def _cloudevent(attributes: dict[str, str], data: bytes, decode_error: str) -> Envelope | str:
    missing = [name for name in REQUIRED_ATTRIBUTES if not attributes.get(name)]
    if missing:
        return f"the CloudEvent has no {missing[0]}"
    if not (_is_valid_text(attributes["id"]) and _is_valid_text(attributes["source"])):
        return "the id or source of the CloudEvent is not valid text"
    message = PushMessage(
        id=attributes["id"],
        payload=None,
        attributes=attributes,
        data=data,
        published_at=attributes.get("time") or None,
        ordering_key=attributes.get("partitionkey", ""),
        source=attributes["source"],
    )
    # Only the data: every hop may add attributes, such as those of a trace.
    return Envelope((attributes["source"], attributes["id"]), message, {"data": data}, decode_error)


def _decode_base64(text: str) -> tuple[bytes, str]:
    try:
        return base64.b64decode(text, validate=True), ""
    except (binascii.Error, ValueError):  # ValueError: not even ASCII
        return b"", "the data is not base64"


def _is_valid_text(value: str) -> bool:
    """Return whether the text can be encoded. A header that was decoded wrongly may contain a lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _attribute_text(raw: msgspec.Raw) -> str:
    """Return an attribute (a text, a number or a boolean) in the form that its header would have."""
    value = msgspec.json.decode(raw, type=str | int | bool | None)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _header_text(name: str, value: str) -> str:
    """Decode a header of the binary mode, in which non-ASCII characters are percent-encoded.

    Bytes that are not UTF-8 become lone surrogates in the id and source, which are then rejected: two different ids
    must not become the same text.
    """
    text = value.removeprefix('"').removesuffix('"') if value.startswith('"') else value
    return unquote(text, errors="surrogateescape" if name in ("id", "source") else "replace")
