"""Webhooks: verify first, then claim the event's id, then run.

who signed it? ── nobody that we know ──→ 403, and the store is never asked
    │ the sender
which event? ── it has no id ──→ 400
    │
the handler, once under that id ──→ the answer that its outcome means (see `delivered`)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Unpack

import msgspec

from onceward.client.base import BaseClient
from onceward.engine.execute import execute
from onceward.engine.job import Job
from onceward.errors import ConfigurationError, InvalidKey
from onceward.keys.weight import LIGHT_BYTES
from onceward.protocol.duration import readable
from onceward.protocol.policy import Defaults
from onceward.protocol.window import Window

from .delivery_status import answer_to
from .delivery_work import Work, refuse_face, tell
from .endpoint import LIMIT, Answering, AsyncEndpoint, Endpoint
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
    """What a handler gets. `request` is as it was received; only its body was signed."""

    id: Any
    type: str
    request: InboundRequest

    @property
    def body(self) -> bytes:
        return self.request.body

    def json(self, type: Any = Any) -> Any:
        """The body, decoded; as an instance of `type`, if that is given."""
        return msgspec.json.decode(self.request.body, type=type)


class Verifying(Answering):
    """The flow, in both colours."""

    wanted_async = False

    def __init__(
        self,
        once: BaseClient,
        scheme: Scheme,
        handler: Callable[[WebhookEvent], Any],
        *,
        name: str | None = None,
        event_id: Callable[[InboundRequest], Any] | None = None,
        limit: int = LIMIT,
        clock: Callable[[], float] = time.time,
        **choices: Unpack[Defaults],
    ) -> None:
        """`name` is the operation (default: `webhook:` and the scheme's); `event_id` another way to read the id.

        `clock` tells how old a signature is: it is the only clock that is read before the store is asked.
        """
        super().__init__(limit)
        refuse_face(once, wanted_async=self.wanted_async, what=type(self).__name__.removeprefix("Async"))
        if not isinstance(scheme, Scheme):
            raise ConfigurationError(f"{scheme!r} is no scheme", hint="such as stripe(secret)")
        if not (name or scheme.name):
            raise ConfigurationError(
                "two senders with schemes of your own would share their ids, so each has a name",
                hint='signed(…, name="acme"), or name= here',
            )
        defaults = {} if scheme.retry_span is None else {"retry_span": scheme.retry_span}
        self.name = name or f"webhook:{scheme.name}"
        self._scheme = scheme
        self._event_id = event_id or scheme.event_id
        self._clock = clock
        self._work = Work(once, self.name, handler, defaults, choices)
        _refuse_short(self._work.client.policy.window, scheme.tolerance)

    async def answer(self, request: InboundRequest) -> Response:
        engine = self._work.engine
        read = self._read
        job = read(request) if len(request.body) <= LIGHT_BYTES else await engine.runtime.think(read, request)
        if isinstance(job, Response):
            return job
        return answer_to(await execute(engine, job), mismatch_status=422)

    def _read(self, request: InboundRequest) -> Job | Response:
        """Everything before the store is asked."""
        objection = self._scheme.objection(request, self._clock())
        if objection is not None:
            tell(self._work.client, "rejected", self.name, reason=objection)
            return problem(403, objection, "the signature does not hold")
        try:
            handshake = self._scheme.handshake(request)
            if handshake is not None:
                return handshake
            event = WebhookEvent(self._event_id(request), self._type(request), request)
            return self._work.job(event.id, {"body": request.body} if self._scheme.same_body else None, event)
        except (LookupError, TypeError, ValueError) as error:  # InvalidKey, or what a reader of the user's own raises
            tell(self._work.client, "rejected", self.name, reason="no_event_id", error=type(error).__qualname__)
            return problem(400, "no_event_id", "nothing says which event this is")

    def _type(self, request: InboundRequest) -> str:
        try:
            return self._scheme.event_type(request)
        except InvalidKey:  # an id of the user's own, from a body that the scheme cannot read
            return ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def _refuse_short(window: Window, tolerance: int | None) -> None:
    """Who has recorded a request could send it again once its id is forgotten, if its signature still holds then."""
    if tolerance is not None and window.length and window.length < tolerance:
        raise ConfigurationError(
            f"a signature holds for {readable(tolerance)} (tolerance), and an event is known for {window} only:"
            " the same request could be sent again in between",
            hint="a window at least as long as the tolerance",
        )


class Webhook(Verifying, Endpoint):
    """A webhook's endpoint: a WSGI application, or `respond(request)`."""


class AsyncWebhook(Verifying, AsyncEndpoint):
    """A webhook's endpoint: an ASGI application, or `await respond(request)`."""

    wanted_async = True
