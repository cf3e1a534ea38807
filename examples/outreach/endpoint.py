"""What arrives over HTTP: replies to our mails, and enrichments that a provider found. A WSGI application.

    POST /replies                a mail, as raw MIME (message/rfc822) or as JSON; with the token of the mail provider
    POST /webhooks/enrichment    {"prospect_id": …, "type": …, "found": …}, signed as Standard Webhooks define

Both may be delivered many times. A reply is identified by its Message-ID, an enrichment by the id of its webhook.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from onceward.http.webhooks import Response, Webhook, WebhookEvent, standard

from .app import Outreach
from .mail import IncomingMail, address, message_ids
from .tables import ENRICHMENT_COLUMNS

Environ = dict[str, Any]
Start = Callable[[str, list[tuple[str, str]]], object]

REPLIES: Final = "/replies"
ENRICHMENT: Final = "/webhooks/enrichment"
MAX_BODY: Final = 25_000_000  # bytes: the largest mail that common providers accept


class JsonReply(msgspec.Struct, frozen=True):
    """A reply as JSON."""

    sender: str | None = None
    message_id: str | None = None
    in_reply_to: list[str] = []
    subject: str = ""
    text: str = ""


class Enrichment(msgspec.Struct, frozen=True):
    """What a provider found."""

    prospect_id: str
    type: str
    found: str


class Endpoint:
    """The application. Without a token or a secret, its route does not exist."""

    def __init__(self, outreach: Outreach, replies_token: str | None, enrichment_secret: str | None) -> None:
        self._outreach = outreach
        self._token = replies_token
        self._webhook: Webhook | None = None
        if enrichment_secret:
            scheme = standard(enrichment_secret)
            self._webhook = Webhook(outreach.once, scheme, self._on_enrichment, name="enrichment_webhook")

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        route = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if route == ("POST", ENRICHMENT) and self._webhook is not None:
            return self._webhook(environ, start)
        if route == ("POST", REPLIES) and self._token:
            return self._respond(start, *self._receive(environ, self._token))
        return self._respond(start, "404 Not Found", {"error": "there is no such route, or it is not configured"})

    def _receive(self, environ: Environ, token: str) -> tuple[str, dict[str, Any]]:
        """Check the token, then the size, then read the mail."""
        if not hmac.compare_digest(environ.get("HTTP_AUTHORIZATION", "").encode(), f"Bearer {token}".encode()):
            return "401 Unauthorized", {"error": "send the token as Authorization: Bearer …"}
        size = int(environ.get("CONTENT_LENGTH") or 0)
        if not 0 < size <= MAX_BODY:
            return "413 Content Too Large", {"error": f"send Content-Length, at most {MAX_BODY} bytes"}
        body = environ["wsgi.input"].read(size)
        if environ.get("CONTENT_TYPE", "").partition(";")[0].strip() != "application/json":
            return "200 OK", self._outreach.receive(body)
        try:
            reply = msgspec.json.decode(body, type=JsonReply)
        except (msgspec.DecodeError, RecursionError) as error:
            return "400 Bad Request", {"error": str(error)}
        return "200 OK", self._outreach.receive_mail(_as_mail(reply))

    def _on_enrichment(self, event: WebhookEvent) -> Response:
        try:
            found: Enrichment = event.json(Enrichment)
        except msgspec.DecodeError as error:
            return Response.json({"error": str(error)}, status=400)
        if found.type not in ENRICHMENT_COLUMNS:
            return Response.json({"error": f"type is one of {', '.join(ENRICHMENT_COLUMNS)}"}, status=400)
        if "\0" in found.found or (found.type == "email" and address(found.found) is None):
            return Response.json({"error": f"found is no {found.type}"}, status=400)
        return Response.json(self._outreach.store_enrichment(found.prospect_id, found.type, found.found))

    def _respond(self, start: Start, status: str, answer: dict[str, Any]) -> list[bytes]:
        body = msgspec.json.encode(answer)
        start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


def _as_mail(reply: JsonReply) -> IncomingMail:
    """Return the same as for the raw mail: providers write ids without brackets, and senders with their names."""
    return IncomingMail(
        message_id=next(iter(message_ids(reply.message_id or "")), None),
        sender=address(reply.sender or ""),
        answers=tuple(one for value in reply.in_reply_to for one in message_ids(value)),
        subject=reply.subject,
        text=reply.text,
    )
