"""Webhooks: verify the signature, then claim the event's id, then run the handler.

is the signature valid? ── no ──→ 403, without using the store
    │ yes
does the event have an id? ── no ──→ 400
    │ yes
run the handler once under that id ──→ the response for its outcome (see `delivery_status`)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Unpack

import msgspec

from onceward.client.base import BaseClient
from onceward.engine.job import Job
from onceward.engine.runner import execute
from onceward.errors import ConfigurationError, InvalidKey
from onceward.keys.small import SMALL_BYTES
from onceward.protocol.duration import Duration, format_duration
from onceward.protocol.policy import Defaults
from onceward.protocol.window import Window

from .delivery_status import response_for
from .delivery_work import Work, check_client, emit_event
from .endpoint import BODY_TIMEOUT, MAX_BODY_BYTES, AsyncEndpoint, BaseEndpoint, Endpoint
from .messages import InboundRequest, Response, problem
from .signatures import Scheme, github, shopify, signed, slack, standard, stripe

__all__ = [
    "AsyncWebhook",
    "InboundRequest",
    "Response",
    "Scheme",
    "Webhook",
    "WebhookEvent",
    "github",
    "shopify",
    "signed",
    "slack",
    "standard",
    "stripe",
]


class WebhookEvent(msgspec.Struct, frozen=True):
    """The event that a handler gets: its `id`, its `type` and the whole `request`. Only the body is signed."""

    id: Any
    type: str
    request: InboundRequest

    @property
    def body(self) -> bytes:
        """The body as it was received and signed."""
        return self.request.body

    def json(self, type: Any = Any) -> Any:
        """Return the decoded body, as an instance of `type` if given."""
        return msgspec.json.decode(self.request.body, type=type)


class BaseWebhook(BaseEndpoint):
    """The flow of a webhook request, for sync and async."""

    wanted_async = False

    def __init__(
        self,
        once: BaseClient,
        scheme: Scheme,
        handler: Callable[[WebhookEvent], Any],
        *,
        name: str | None = None,
        event_id: Callable[[InboundRequest], Any] | None = None,
        limit: int = MAX_BODY_BYTES,
        max_buffered: int | None = None,
        body_timeout: Duration = BODY_TIMEOUT,
        clock: Callable[[], float] = time.time,
        **choices: Unpack[Defaults],
    ) -> None:
        """Create the endpoint.

        Args:
            once: The client that claims events.
            scheme: How the sender signs requests, such as `stripe(secret)`.
            handler: The work. It gets a `WebhookEvent`, and may return a `Response`.
            name: The operation. The default is `webhook:` and the name of the scheme.
            event_id: Overrides how the id of the event is read from the request.
            limit: The maximum size of a body in bytes. Larger ones get 413.
            max_buffered: The maximum size of all bodies that are read at the same time. Beyond it, requests get 503.
            body_timeout: How long a client may take to send its body to an async endpoint. After that, the request
                gets 408. For a sync endpoint, set such a limit in the server.
            clock: Measures the age of signatures. Everything else uses the store's clock.
            choices: Policy settings of the handler.
        """
        super().__init__(limit, max_buffered, body_timeout)
        check_client(once, wanted_async=self.wanted_async, what=type(self).__name__.removeprefix("Async"))
        if not isinstance(scheme, Scheme):
            raise ConfigurationError(f"{scheme!r} is not a scheme", hint="pass one such as stripe(secret)")
        if not (name or scheme.name):
            raise ConfigurationError(
                "a custom scheme needs a name: without it, two senders would share one set of ids",
                hint='pass signed(…, name="acme"), or name= here',
            )
        defaults = {} if scheme.retry_span is None else {"retry_span": scheme.retry_span}
        self.name = name or f"webhook:{scheme.name}"
        self._scheme = scheme
        self._event_id = event_id or scheme.event_id
        self._clock = clock
        self._work = Work(once, self.name, handler, defaults, choices)
        _check_window(self._work.client.policy.window, scheme.tolerance)

    async def check_head(self, request: InboundRequest) -> Response | None:
        """Refuse a request whose headers cannot be valid, whatever its body is."""
        return self._refuse(self._scheme.head_rejection(request, self._clock()))

    def _refuse(self, rejection: str | None) -> Response | None:
        if rejection is None:
            return None
        emit_event(self._work.client, "rejected", self.name, reason=rejection)
        return problem(403, rejection, "the signature is not valid")

    async def handle(self, request: InboundRequest) -> Response:
        engine = self._work.engine
        read = self._read
        job = read(request) if len(request.body) <= SMALL_BYTES else await engine.runtime.compute(read, request)
        if isinstance(job, Response):
            return job
        return response_for(await execute(engine, job), mismatch_status=422)

    def _read(self, request: InboundRequest) -> Job | Response:
        """Verify and parse the request. Does not use the store."""
        refusal = self._refuse(self._scheme.rejection_reason(request, self._clock()))
        if refusal is not None:
            return refusal
        try:
            handshake = self._scheme.handshake(request)
            if handshake is not None:
                return handshake
            event = WebhookEvent(self._event_id(request), self._type(request), request)
            return self._work.job(event.id, {"body": request.body} if self._scheme.same_body else None, event)
        except (LookupError, TypeError, ValueError) as error:  # InvalidKey, or raised by the user's event_id function
            emit_event(self._work.client, "rejected", self.name, reason="no_event_id", error=type(error).__qualname__)
            return problem(400, "no_event_id", "the request has no event id")

    def _type(self, request: InboundRequest) -> str:
        try:
            return self._scheme.event_type(request)
        except InvalidKey:  # the user's event_id reads a body that the scheme cannot parse
            return ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def _check_window(window: Window, tolerance: int | None) -> None:
    """Raise if a signature can outlive the window: an attacker could then replay a recorded request.

    A time may be ahead of our clock by the tolerance, so a signature can be valid for twice the tolerance. A window
    until midnight may end at any moment.
    """
    if tolerance is None or window.kind == "forever" or window.length > 2 * tolerance:
        return
    raise ConfigurationError(
        f"a signature can be valid for {format_duration(2 * tolerance)} (twice the tolerance), but events are only"
        f" remembered for: {window}. A recorded request could be replayed in between",
        hint=f'choose a window longer than {format_duration(2 * tolerance)}, such as window="1d"',
    )


class Webhook(BaseWebhook, Endpoint):
    """A webhook endpoint: a WSGI application, or call `respond(request)`."""


class AsyncWebhook(BaseWebhook, AsyncEndpoint):
    """A webhook endpoint: an ASGI application, or call `await respond(request)`."""

    wanted_async = True
