"""Verify the HMAC signatures of webhooks: schemes of well-known senders, and custom ones.

Every scheme defines the same five things: where the signatures are, what was signed before the body, how old a
signature may be, the id of the event and its type. All signatures are compared, in constant time, even after a match.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qs

import msgspec

from onceward.errors import ConfigurationError, MissingKey
from onceward.protocol.duration import Duration, microseconds

from .messages import InboundRequest, Response

T = TypeVar("T")

TOLERANCE: Final = "5m"
"""As Stripe, Slack and Standard Webhooks recommend: more than clocks differ, but too short for most replay attacks."""

SIGNED_BEFORE: Final = "{timestamp}."

_seconds = re.compile(r"[0-9]{1,12}").fullmatch


class SignatureData(NamedTuple):
    """The `signatures` in a request. Each is a MAC over `before` and the body; `timestamp` is part of `before`."""

    signatures: list[str]
    before: bytes = b""
    timestamp: str | None = None


def _no_handshake(_request: InboundRequest) -> Response | None:
    """Most senders have no handshake."""
    return None


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """How one sender signs. `same_body`: retries have identical bodies, so a different body is a mismatch.

    `read_signature` reads headers only: it is also called before the body is read.
    `handshake` returns the response to a request that only tests the endpoint, or None if the request is an event.
    """

    name: str
    """The sender, such as `stripe`. It is only shown, and empty for a scheme of your own without a name."""
    secrets: tuple[bytes, ...]
    """The accepted signing secrets. A signature made with any of them is valid, so that you can rotate them."""
    read_signature: Callable[[InboundRequest], SignatureData]
    event_id: Callable[[InboundRequest], Any]
    """Returns the id of the event, which becomes its key. If it raises, the request is answered with 400."""
    event_type: Callable[[InboundRequest], str]
    """Returns the kind of the event, such as `invoice.paid`."""
    encode: Callable[[bytes], str] = bytes.hex
    """Converts the MAC to text as the sender writes it: hexadecimal by default."""
    digest: str = "sha256"
    """The hash function of the HMAC, by its name in `hashlib`."""
    tolerance: int | None = None
    """How far the signed timestamp may be from now, in µs. None if the sender signs no timestamp."""
    retry_span: Duration | None = None
    """How long the sender redelivers an event. None if that is not known. A shorter window causes a warning."""
    same_body: bool = True
    handshake: Callable[[InboundRequest], Response | None] = _no_handshake

    def rejection_reason(self, request: InboundRequest, now: float) -> str | None:
        """Return why the signature is rejected, or None if it is valid. `now` is in seconds since 1970."""
        received = self.read_signature(request)
        rejection = self._unsigned_rejection(received, now)
        if rejection is not None:
            return rejection
        given = [signature.encode("utf-8", "replace") for signature in received.signatures]
        is_valid = False
        for secret in self.secrets:
            wanted = self.encode(self._mac(secret, received.before, request.body)).encode()
            for signature in given:
                is_valid |= hmac.compare_digest(wanted, signature)
        return None if is_valid else "bad_signature"

    def head_rejection(self, request: InboundRequest, now: float) -> str | None:
        """Return why the headers are rejected, whatever the body is, or None."""
        return self._unsigned_rejection(self.read_signature(request), now)

    def _unsigned_rejection(self, received: SignatureData, now: float) -> str | None:
        if not received.signatures:
            return "missing_signature"
        if self.tolerance is not None and not _is_recent(received.timestamp, now, self.tolerance):
            return "stale_timestamp"
        return None

    def _mac(self, secret: bytes, before: bytes, body: bytes) -> bytes:
        mac = hmac.new(secret, before, self.digest)
        mac.update(body)
        return mac.digest()

    def __repr__(self) -> str:  # never the secrets
        return f"<Scheme {self.name or 'custom'}>"


def _is_recent(timestamp: str | None, now: float, tolerance: int) -> bool:
    return timestamp is not None and bool(_seconds(timestamp)) and abs(now - int(timestamp)) * 1_000_000 <= tolerance


# ── well-known senders ──


def stripe(*secrets: str, tolerance: Duration = TOLERANCE) -> Scheme:
    """Return the scheme of Stripe: `Stripe-Signature: t=…,v1=…`.

    `secrets` are the signing secrets of the endpoint; pass two while you rotate them. A signature older than
    `tolerance` is refused. The event's id is in the body, which differs between retries.
    """

    def read_signature(request: InboundRequest) -> SignatureData:
        pairs = [part.strip().partition("=") for part in request.header("stripe-signature").split(",")]
        times = [value for name, _, value in pairs if name == "t"]
        if len(times) != 1:
            return SignatureData([])
        signatures = [value for name, _, value in pairs if name == "v1"]
        return SignatureData(signatures, times[0].encode("utf-8", "replace") + b".", times[0])

    return Scheme(
        name="stripe",
        secrets=_encode_secrets(secrets),
        read_signature=read_signature,
        event_id=lambda request: _decode_json(request.body, _Event).id,
        event_type=lambda request: _decode_json(request.body, _Event).type,
        tolerance=microseconds(tolerance, "tolerance"),
        retry_span="3d",
        same_body=False,
    )


def github(*secrets: str) -> Scheme:
    """Return the scheme of GitHub: `X-Hub-Signature-256: sha256=…`.

    `secrets` are the secrets of the webhook; pass two while you rotate them. GitHub signs neither a timestamp nor the
    delivery's id.
    """
    return signed(
        *secrets,
        name="github",
        header="x-hub-signature-256",
        prefix="sha256=",
        event_id="x-github-delivery",
        event_type="x-github-event",
        retry_span="3d",
    )


def slack(*secrets: str, tolerance: Duration = TOLERANCE) -> Scheme:
    """Return the scheme of Slack: `X-Slack-Signature: v0=…` over timestamp and body.

    `secrets` are the signing secrets of the app. A signature older than `tolerance` is refused. It also answers Slack's
    url_verification.
    """

    def read_signature(request: InboundRequest) -> SignatureData:
        timestamp = request.header("x-slack-request-timestamp")
        signature = request.header("x-slack-signature")
        known = [signature[3:]] if signature.startswith("v0=") else []
        return SignatureData(known, b"v0:" + timestamp.encode("utf-8", "replace") + b":", timestamp)

    def handshake(request: InboundRequest) -> Response | None:
        body = _slack_body(request)
        return Response.json({"challenge": body.challenge}) if body.type == "url_verification" else None

    return Scheme(
        name="slack",
        secrets=_encode_secrets(secrets),
        read_signature=read_signature,
        event_id=lambda request: _slack_body(request).id(),
        event_type=lambda request: _slack_body(request).kind(),
        tolerance=microseconds(tolerance, "tolerance"),
        retry_span="1h",
        handshake=handshake,
    )


def shopify(*secrets: str) -> Scheme:
    """Return the scheme of Shopify: `X-Shopify-Hmac-Sha256`, base64.

    `secrets` are the client secrets of the app. One event may have several topics, so topic and id identify it.
    """

    def event_id(request: InboundRequest) -> tuple[str, str]:
        id = request.header("x-shopify-event-id") or request.header("x-shopify-webhook-id")
        return (request.header("x-shopify-topic"), id) if id else _raise_missing("x-shopify-event-id")

    return signed(
        *secrets,
        name="shopify",
        header="x-shopify-hmac-sha256",
        encoding="base64",
        event_id=event_id,
        event_type="x-shopify-topic",
        retry_span="2d",
    )


def standard(*secrets: str, tolerance: Duration = TOLERANCE, prefix: str = "webhook") -> Scheme:
    """Return the scheme of Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature: v1,…`.

    `secrets` are the signing secrets, with or without `whsec_`. A signature older than `tolerance` is refused. `prefix`
    is how the names of the headers begin: older senders use `svix`.
    """

    def read_signature(request: InboundRequest) -> SignatureData:
        id, timestamp = request.header(f"{prefix}-id"), request.header(f"{prefix}-timestamp")
        if "." in id:  # a dot separates id, time and body: the signature would also fit a shorter id and a longer body
            return SignatureData([])
        before = f"{id}.{timestamp}.".encode("utf-8", "replace")
        versions = [part.partition(",") for part in request.header(f"{prefix}-signature").split()]
        return SignatureData([value for version, _, value in versions if version == "v1"], before, timestamp)

    return Scheme(
        name="standard",
        secrets=tuple(_standard_secret(secret) for secret in _encode_secrets(secrets)),
        read_signature=read_signature,
        event_id=_header_id(f"{prefix}-id"),
        event_type=lambda request: _decode_json(request.body, _Typed).type,
        encode=_base64,
        tolerance=microseconds(tolerance, "tolerance"),
        retry_span="3d",
    )


def signed(
    *secrets: str,
    header: str,
    event_id: str | Callable[[InboundRequest], Any],
    event_type: str = "",
    name: str = "",
    prefix: str = "",
    encoding: str = "hex",
    digest: str = "sha256",
    timestamp: str = "",
    before: str = SIGNED_BEFORE,
    tolerance: Duration = TOLERANCE,
    retry_span: Duration | None = None,
) -> Scheme:
    """Return a custom scheme, for a sender that signs its requests with an HMAC.

    Args:
        secrets: The shared secrets. Pass two while you rotate them.
        header: The header that contains the signature.
        event_id: The header with the id of the event, or a function of the request. Prefer to read the id from the
            body: only the body is signed.
        event_type: The header with the type of the event, which the handler gets as `type`.
        name: The name of the sender. It becomes part of the operation's name.
        prefix: Text before the signature in its header, such as `sha256=`.
        encoding: How the signature is written: `hex` or `base64`.
        digest: The hash of the HMAC, such as `sha256` or `sha512`.
        timestamp: The header with the time in seconds since 1970, if the sender signs it.
        before: The text that is signed before the body. It contains `{timestamp}`.
        tolerance: How old a signed timestamp may be.
        retry_span: For how long the sender retries. A shorter window causes a warning.

    Raises:
        ConfigurationError: `encoding` or `digest` is unknown, or the timestamp would not be signed.
    """
    if encoding not in ("hex", "base64"):
        raise ConfigurationError(f"encoding cannot be {encoding!r}", hint="choose one of: hex, base64")
    if digest not in hashlib.algorithms_guaranteed or "shake" in digest:
        raise ConfigurationError(f"there is no digest {digest!r}", hint="such as sha256 or sha512")
    if timestamp and "{timestamp}" not in before:
        raise ConfigurationError(
            f"signed(timestamp={timestamp!r}, before={before!r}) would trust a time that is not signed",
            hint="write {timestamp} in before, where the sender puts it; if the time is not signed, remove timestamp=",
        )
    if not timestamp and before != SIGNED_BEFORE:
        raise ConfigurationError(
            f"signed(before={before!r}) has no effect without a timestamp", hint="pass timestamp=, the header"
        )

    def read_signature(request: InboundRequest) -> SignatureData:
        given, at = request.header(header), request.header(timestamp) if timestamp else None
        signed_before = b"" if at is None else before.replace("{timestamp}", at).encode("utf-8", "replace")
        known = given.startswith(prefix) and len(given) > len(prefix)
        return SignatureData([given[len(prefix) :]] if known else [], signed_before, at)

    return Scheme(
        name=name,
        secrets=_encode_secrets(secrets),
        read_signature=read_signature,
        event_id=_header_id(event_id) if isinstance(event_id, str) else event_id,
        event_type=lambda request: request.header(event_type) if event_type else "",
        encode=_base64 if encoding == "base64" else bytes.hex,
        digest=digest,
        tolerance=microseconds(tolerance, "tolerance") if timestamp else None,
        retry_span=retry_span,
    )


# ── reading the id and type of an event ──


class _Typed(msgspec.Struct):
    type: str = ""


class _Event(msgspec.Struct):
    id: str
    type: str = ""


class _SlackEvent(msgspec.Struct):
    type: str = ""


class _SlackBody(msgspec.Struct):
    """An event, or an interaction, which has a trigger id instead of an event id."""

    type: str = ""
    event_id: str = ""
    trigger_id: str = ""
    challenge: str = ""
    command: str = ""
    event: _SlackEvent = msgspec.field(default_factory=_SlackEvent)

    def id(self) -> str:
        return self.event_id or self.trigger_id or _raise_missing("event_id")

    def kind(self) -> str:
        return self.event.type or self.command or self.type


for _kind in (_Typed, _Event, _SlackBody):
    msgspec.json.Decoder(_kind)  # built at import: two threads that build it at the same time would crash the process


SLACK_FIELDS = 1_000
"""Slack sends about 15. Many small fields would take seconds to parse."""


def _slack_body(request: InboundRequest) -> _SlackBody:
    """Parse the body: JSON for events, a form for commands, and a form with JSON in it for interactions."""
    if request.media_type() != "application/x-www-form-urlencoded":
        return _decode_json(request.body, _SlackBody)
    try:
        form = parse_qs(request.body.decode(), max_num_fields=SLACK_FIELDS)
    except ValueError:
        raise MissingKey(f"the body is not a form of at most {SLACK_FIELDS} fields") from None
    fields = {name: values[0] for name, values in form.items()}
    if "payload" in fields:
        return _decode_json(fields["payload"].encode(), _SlackBody)
    known = {name: fields[name] for name in ("command", "trigger_id") if name in fields}
    return msgspec.convert(known, _SlackBody)


def _decode_json(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise MissingKey("the body is not the JSON of an event") from None


def _header_id(name: str) -> Callable[[InboundRequest], str]:
    return lambda request: request.header(name) or _raise_missing(name)


def _raise_missing(where: str) -> Any:
    raise MissingKey(f"the webhook has no {where}")


def _base64(mac: bytes) -> str:
    return base64.b64encode(mac).decode("ascii")


def _encode_secrets(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    """Encode the secrets. There are several while one replaces another."""
    if not secrets or not all(isinstance(secret, str) and secret.strip() for secret in secrets):
        raise ConfigurationError(
            "a webhook needs at least one non-empty secret", hint="an empty secret would accept every request"
        )
    return tuple(secret.encode() for secret in secrets)


def _standard_secret(secret: bytes) -> bytes:
    try:
        found = base64.b64decode(secret.removeprefix(b"whsec_"), validate=True)
    except binascii.Error:
        raise ConfigurationError("a secret of Standard Webhooks must be base64, as in whsec_…") from None
    if not found:
        raise ConfigurationError("a webhook needs a non-empty secret", hint="there is nothing after whsec_")
    return found
