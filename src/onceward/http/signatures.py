"""Who signed a webhook: HMAC over the body, as the known senders do it, and a scheme of your own.

Every scheme says the same five things: where the signatures are, what was signed before the body, how old it may be,
which event it is, and of which type. Signatures are compared in constant time, and all of them, whichever fits.
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
"""What Stripe, Slack and Standard Webhooks all recommend: clocks differ by less, and a thief has no longer."""

_seconds = re.compile(r"[0-9]{1,12}").fullmatch


class Claimed(NamedTuple):
    """What a request says about its signature. The MAC is over `before` and the body."""

    signatures: list[str]
    before: bytes = b""
    timestamp: str | None = None


def _no_handshake(_request: InboundRequest) -> Response | None:
    """Most senders just send."""
    return None


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """How one sender signs. `same_body`: a retry has the very same body, so that another one is a mismatch."""

    name: str
    secrets: tuple[bytes, ...]
    claimed: Callable[[InboundRequest], Claimed]
    event_id: Callable[[InboundRequest], Any]
    event_type: Callable[[InboundRequest], str]
    encode: Callable[[bytes], str] = bytes.hex
    digest: str = "sha256"
    tolerance: int | None = None  # µs
    retry_span: Duration | None = None
    same_body: bool = True
    handshake: Callable[[InboundRequest], Response | None] = _no_handshake

    def objection(self, request: InboundRequest, now: float) -> str | None:
        """Why the request is not to be trusted; None if it is. `now` is in seconds since 1970."""
        claimed = self.claimed(request)
        if not claimed.signatures:
            return "missing_signature"
        given = [signature.encode("utf-8", "replace") for signature in claimed.signatures]
        genuine = False
        for secret in self.secrets:
            wanted = self.encode(self._mac(secret, claimed.before, request.body)).encode()
            for one in given:
                genuine |= hmac.compare_digest(wanted, one)
        if not genuine:
            return "bad_signature"
        if self.tolerance is not None and not _is_recent(claimed.timestamp, now, self.tolerance):
            return "stale_timestamp"
        return None

    def _mac(self, secret: bytes, before: bytes, body: bytes) -> bytes:
        mac = hmac.new(secret, before, self.digest)
        mac.update(body)
        return mac.digest()

    def __repr__(self) -> str:  # never the secrets
        return f"<Scheme {self.name or 'of your own'}>"


def _is_recent(timestamp: str | None, now: float, tolerance: int) -> bool:
    return timestamp is not None and bool(_seconds(timestamp)) and abs(now - int(timestamp)) * 1_000_000 <= tolerance


# ── the known senders ──


def stripe(*secrets: str, tolerance: Duration = TOLERANCE) -> Scheme:
    """`Stripe-Signature: t=…,v1=…`. The event's id is in the body, which differs between retries."""

    def claimed(request: InboundRequest) -> Claimed:
        pairs = [part.strip().partition("=") for part in request.header("stripe-signature").split(",")]
        times = [value for name, _, value in pairs if name == "t"]
        if len(times) != 1:
            return Claimed([])
        signatures = [value for name, _, value in pairs if name == "v1"]
        return Claimed(signatures, times[0].encode("utf-8", "replace") + b".", times[0])

    return Scheme(
        name="stripe",
        secrets=_texts(secrets),
        claimed=claimed,
        event_id=lambda request: _json(request, _Event).id,
        event_type=lambda request: _json(request, _Event).type,
        tolerance=microseconds(tolerance, "tolerance"),
        retry_span="3d",
        same_body=False,
    )


def github(*secrets: str) -> Scheme:
    """`X-Hub-Signature-256: sha256=…`. GitHub signs neither a time nor the delivery's id."""
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
    """`X-Slack-Signature: v0=…` over the time and the body. Answers Slack's url_verification by itself."""

    def claimed(request: InboundRequest) -> Claimed:
        timestamp = request.header("x-slack-request-timestamp")
        signature = request.header("x-slack-signature")
        known = [signature[3:]] if signature.startswith("v0=") else []
        return Claimed(known, b"v0:" + timestamp.encode("utf-8", "replace") + b":", timestamp)

    def handshake(request: InboundRequest) -> Response | None:
        body = _slack_body(request)
        return Response.json({"challenge": body.challenge}) if body.type == "url_verification" else None

    return Scheme(
        name="slack",
        secrets=_texts(secrets),
        claimed=claimed,
        event_id=lambda request: _slack_body(request).id(),
        event_type=lambda request: _slack_body(request).kind(),
        tolerance=microseconds(tolerance, "tolerance"),
        retry_span="1h",
        handshake=handshake,
    )


def shopify(*secrets: str) -> Scheme:
    """`X-Shopify-Hmac-Sha256`, base64. One event may come under several topics: both are its id."""

    def event_id(request: InboundRequest) -> tuple[str, str]:
        id = request.header("x-shopify-event-id") or request.header("x-shopify-webhook-id")
        return (request.header("x-shopify-topic"), id) if id else _nameless("x-shopify-event-id")

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
    """Standard Webhooks: `webhook-id`, `-timestamp` and `-signature: v1,… v1,…`. Older senders write `svix-`."""

    def claimed(request: InboundRequest) -> Claimed:
        timestamp = request.header(f"{prefix}-timestamp")
        before = f"{request.header(f'{prefix}-id')}.{timestamp}.".encode("utf-8", "replace")
        versions = [one.partition(",") for one in request.header(f"{prefix}-signature").split()]
        return Claimed([value for version, _, value in versions if version == "v1"], before, timestamp)

    return Scheme(
        name="standard",
        secrets=tuple(_standard_secret(one) for one in _texts(secrets)),
        claimed=claimed,
        event_id=_header_id(f"{prefix}-id"),
        event_type=lambda request: _json(request, _Typed).type,
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
    before: str = "{timestamp}.",
    tolerance: Duration = TOLERANCE,
    retry_span: Duration | None = None,
) -> Scheme:
    """A scheme of your own: the MAC, behind `prefix`, is in `header`. `name` is the sender's.

    With `timestamp`, the name of the header that has it in seconds, `before` is what was signed in front of the body.
    `event_id` is a header, or what reads the id from a request; best from the body, for only that is signed.
    """
    if encoding not in ("hex", "base64"):
        raise ConfigurationError(f"encoding cannot be {encoding!r}", hint="choose one of: hex, base64")
    if digest not in hashlib.algorithms_guaranteed or "shake" in digest:
        raise ConfigurationError(f"there is no digest {digest!r}", hint="such as sha256 or sha512")

    def claimed(request: InboundRequest) -> Claimed:
        given, at = request.header(header), request.header(timestamp) if timestamp else None
        front = b"" if at is None else before.replace("{timestamp}", at).encode("utf-8", "replace")
        known = given.startswith(prefix) and len(given) > len(prefix)
        return Claimed([given[len(prefix) :]] if known else [], front, at)

    return Scheme(
        name=name,
        secrets=_texts(secrets),
        claimed=claimed,
        event_id=_header_id(event_id) if isinstance(event_id, str) else event_id,
        event_type=lambda request: request.header(event_type) if event_type else "",
        encode=_base64 if encoding == "base64" else bytes.hex,
        digest=digest,
        tolerance=microseconds(tolerance, "tolerance") if timestamp else None,
        retry_span=retry_span,
    )


# ── reading ──


class _Typed(msgspec.Struct):
    type: str = ""


class _Event(msgspec.Struct):
    id: str
    type: str = ""


class _SlackEvent(msgspec.Struct):
    type: str = ""


class _SlackBody(msgspec.Struct):
    """An event, or an interaction: those have a trigger instead of an event's id."""

    type: str = ""
    event_id: str = ""
    trigger_id: str = ""
    challenge: str = ""
    command: str = ""
    event: _SlackEvent = msgspec.field(default_factory=_SlackEvent)

    def id(self) -> str:
        return self.event_id or self.trigger_id or _nameless("event_id")

    def kind(self) -> str:
        return self.event.type or self.command or self.type


for _kind in (_Typed, _Event, _SlackBody):
    msgspec.json.Decoder(_kind)  # now: two first readers at once would crash the process


def _slack_body(request: InboundRequest) -> _SlackBody:
    """JSON for events; a form for commands, and a form with JSON in it for what people click."""
    if request.media_type() != "application/x-www-form-urlencoded":
        return _json(request, _SlackBody)
    try:
        fields = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
    except ValueError:
        raise MissingKey("the body is no form") from None
    if "payload" in fields:
        return _decoded(fields["payload"].encode(), _SlackBody)
    known = {name: fields[name] for name in ("command", "trigger_id") if name in fields}
    return msgspec.convert(known, _SlackBody)


def _json(request: InboundRequest, kind: type[T]) -> T:
    return _decoded(request.body, kind)


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise MissingKey("the body is not the JSON of an event") from None


def _header_id(name: str) -> Callable[[InboundRequest], str]:
    return lambda request: request.header(name) or _nameless(name)


def _nameless(where: str) -> Any:
    raise MissingKey(f"there is no {where}")


def _base64(mac: bytes) -> str:
    return base64.b64encode(mac).decode("ascii")


def _texts(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    """Several while one replaces another."""
    if not secrets or not all(isinstance(one, str) and one for one in secrets):
        raise ConfigurationError("a webhook needs its secret", hint="an empty one would let everybody in")
    return tuple(one.encode() for one in secrets)


def _standard_secret(secret: bytes) -> bytes:
    try:
        found = base64.b64decode(secret.removeprefix(b"whsec_"), validate=True)
    except binascii.Error:
        raise ConfigurationError("a secret of Standard Webhooks is base64, as in whsec_…") from None
    if not found:
        raise ConfigurationError("a webhook needs its secret", hint="behind whsec_ nothing is left of it")
    return found
