"""Push endpoints: a broker posts each message until it is acknowledged.

    is the sender allowed to push? ── no ──→ 401
        │ yes
    an envelope with an id? ── no ──→ 400
        │ yes
    a JSON object of a known shape? ── no ──→ recorded as permanently FAILED, event `rejected`, 204
        │ yes
    run its handler once under the message id ──→ the response for its outcome (see `delivery_status`)

A handler that detects duplicates itself, for example with `once.state()`, is declared with `claim=False` and returns
the outcome.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any, ClassVar, Final, TypeVar, Unpack

import msgspec

from onceward.client.base import BaseClient
from onceward.engine.error_text import message_of
from onceward.engine.job import Job
from onceward.engine.runner import execute
from onceward.errors import ConfigurationError, OncewardError
from onceward.keys.fingerprint import fingerprint
from onceward.keys.small import SMALL_BYTES
from onceward.operations.operation import label_of
from onceward.protocol.duration import Duration
from onceward.protocol.outcome import Mismatch, Outcome, is_outcome
from onceward.protocol.policy import Defaults

from .delivery_status import is_temporary, response_for, temporary_error_response
from .delivery_work import Work, check_client, emit_event, is_async
from .endpoint import BODY_TIMEOUT, MAX_BODY_BYTES, AsyncEndpoint, BaseEndpoint, Endpoint
from .envelope import Envelope, PushMessage, parse_cloudevent, parse_pubsub
from .messages import InboundRequest, Response, problem
from .routing import RouteMatcher, Shape
from .tokens import Check, Refusal, bearer_token, query_token

__all__ = [
    "AsyncCloudEventsPush",
    "AsyncPubSubPush",
    "CloudEventsPush",
    "InboundRequest",
    "PubSubPush",
    "PushMessage",
    "Refusal",
    "Response",
    "bearer_token",
    "query_token",
]

Handler = TypeVar("Handler", bound=Callable[..., Any])

ACKNOWLEDGED: Final = 200
REASONS: Final = {"executed": "applied", "done": "duplicate_message_noop"}
RETRY_SPAN: Final = "7d"
"""How long Pub/Sub redelivers a message by default."""


class Route(msgspec.Struct, frozen=True):
    """A handler, the messages it accepts, and whether they are claimed."""

    matcher: RouteMatcher
    work: Work
    claim: bool


class Unroutable(msgspec.Struct, frozen=True):
    """A valid envelope that no handler accepts. `reason` is for programs, `why` for people."""

    envelope: Envelope
    reason: str
    why: str


class Routed(msgspec.Struct, frozen=True):
    """A message with its handler. `job` is None if the message is not claimed."""

    envelope: Envelope
    route: Route
    message: PushMessage[Any]
    job: Job | None


class BasePush(BaseEndpoint):
    """The flow of a push request, for sync and async and for every kind of envelope."""

    wanted_async: ClassVar[bool] = False

    def __init__(
        self,
        once: BaseClient,
        name: str,
        *,
        check: Check | None,
        limit: int = MAX_BODY_BYTES,
        max_buffered: int | None = None,
        body_timeout: Duration = BODY_TIMEOUT,
        **choices: Unpack[Defaults],
    ) -> None:
        """Create the endpoint.

        Args:
            once: The client that claims messages.
            name: The operation, one for each topic.
            check: Authenticates the sender, such as `google_oidc(…)`; None accepts every sender. It returns True
                to accept the request, and False or a `Refusal` with the reason for the log to refuse it. It runs before
                the body is read, so it receives a request without a body.
            limit: The maximum size of a body in bytes. Larger ones get 413.
            max_buffered: The maximum size of all bodies that are read at the same time. Beyond it, requests get 503.
            body_timeout: How long a client may take to send its body to an async endpoint. After that, the request
                gets 408. For a sync endpoint, set such a limit in the server.
            choices: Policy settings of all handlers.
        """
        super().__init__(limit, max_buffered, body_timeout)
        check_client(once, wanted_async=self.wanted_async, what=type(self).__name__.removeprefix("Async"))
        if check is not None and not self.wanted_async and inspect.iscoroutinefunction(check):
            raise ConfigurationError(f"{label_of(check)} is async, and a sync endpoint cannot await it")
        self.name = name
        self._once = once
        self._check = check
        self._choices = choices
        self._routes: list[Route] = []
        self._rejections = self._work(_no_handler_async if is_async(once) else _no_handler, {})

    def on(
        self,
        shape: Shape = None,
        *,
        attributes: Mapping[str, str] | None = None,
        claim: bool = True,
        **choices: Unpack[Defaults],
    ) -> Callable[[Handler], Handler]:
        """Decorate the handler of messages of this kind. The first handler that matches a message gets it.

        Args:
            shape: The class of the payload, or the names of members that it must have. None accepts every payload.
            attributes: Attributes that the message must have, with these values.
            claim: Whether to claim the message's id. With False, the handler detects duplicates itself, for example
                with `once.state()`, and returns the `Outcome`.
            choices: Policy settings for this handler.

        Returns:
            A decorator that returns the handler unchanged.

        Raises:
            ConfigurationError: An earlier handler accepts every message, or a setting has no effect without a claim.
        """
        matcher = RouteMatcher(shape, attributes)
        ineffective = sorted(choices.keys() - {"final"})
        if ineffective and not claim:
            raise ConfigurationError(
                f"{self.name}: on({ineffective[0]}=…) has no effect without a claim",
                hint="remove it; without a claim only final= is used",
            )
        if self._routes and self._routes[-1].matcher.matches_all:
            raise ConfigurationError(
                f"{self.name}: the previous handler accepts every message", hint="declare that handler last"
            )

        def decorate(handler: Handler) -> Handler:
            self._routes.append(Route(matcher, self._work(handler, choices), claim))
            return handler

        return decorate

    @property
    def handlers(self) -> tuple[Callable[..., Any], ...]:
        """All handlers, in the order in which messages are matched."""
        return tuple(route.work.handler for route in self._routes)

    def _work(self, handler: Callable[..., Any], choices: Mapping[str, Any]) -> Work:
        defaults = {"retry_span": RETRY_SPAN, "reasons": REASONS}
        return Work(self._once, self.name, handler, defaults, {**self._choices, **choices})

    def parse_envelope(self, request: InboundRequest) -> Envelope | str:
        """Return the envelope of a request, or the reason why there is none."""
        raise NotImplementedError

    # ── the flow ──

    async def handle(self, request: InboundRequest) -> Response:
        runtime = self._once.engine.runtime
        is_small = len(request.body) <= SMALL_BYTES
        found = self._read(request) if is_small else await runtime.compute(self._read, request)
        if isinstance(found, Response):
            return found
        if isinstance(found, Unroutable):
            return await self._record_rejection(found)
        if found.job is None:
            return await self._call_unclaimed(found)
        return await self._respond_to_outcome(await execute(found.route.work.engine, found.job), found.envelope)

    def _read(self, request: InboundRequest) -> Routed | Unroutable | Response:
        """Parse and route the request. Does not use the store."""
        envelope = self.parse_envelope(request)
        if isinstance(envelope, str):
            self._emit_rejected("no_envelope")
            return problem(400, "no_envelope", envelope)
        decoded = envelope.decode()
        if isinstance(decoded, str):
            return Unroutable(envelope, "undecodable_data", decoded)
        for route in self._routes:
            message = route.matcher.match(decoded)
            if message is not None:
                job = route.work.job(envelope.key, envelope.payload, message) if route.claim else None
                return Routed(envelope, route, message, job)
        members = f"its members are {', '.join(sorted(decoded.payload))[:200]}" if decoded.data else "it has no data"
        return Unroutable(envelope, "unknown_shape", members)

    async def _record_rejection(self, found: Unroutable) -> Response:
        """Record the message as permanently failed, so that an operator can inspect it. The broker gets no error."""
        work = self._rejections
        job = work.rejection(found.envelope.key, found.envelope.payload, f"{found.reason}: {found.why}")
        outcome = await execute(work.engine, job)
        emit_event(self._once, "rejected", self.name, job.key.text, reason=found.reason)
        return await self._respond_to_outcome(outcome, found.envelope)

    async def _call_unclaimed(self, found: Routed) -> Response:
        """Call a handler that detects duplicates itself. A final error is recorded like an unroutable message."""
        work = found.route.work
        try:
            outcome = work.handler(found.message)
            if self.wanted_async and hasattr(outcome, "__await__"):
                outcome = await outcome
        except work.client.policy.final as error:
            return await self._record_rejection(Unroutable(found.envelope, "unusable_data", message_of(error)))
        except Exception as error:  # noqa: BLE001 (the broker must deliver it again, whatever it is)
            return self._failure_response(found.envelope, error)
        if not is_outcome(outcome):
            raise ConfigurationError(
                f"{label_of(work.handler)} returned {type(outcome).__name__}, not an Outcome",
                hint="with claim=False the handler must return the outcome: return state.apply(…)",
            )
        return await self._respond_to_outcome(outcome, found.envelope)

    def _failure_response(self, envelope: Envelope, error: Exception) -> Response:
        key = self._once.key(envelope.key, name=self.name)
        emit_event(self._once, "failed", self.name, key.text, error=type(error).__qualname__)
        if isinstance(error, OncewardError) and is_temporary(error):
            return temporary_error_response(error)
        return problem(500, "failed", "the work failed; deliver it again")

    async def _respond_to_outcome(self, outcome: Outcome[Any], envelope: Envelope) -> Response:
        """Return the response. A mismatch is acknowledged without being processed, so record it under its own key."""
        if isinstance(outcome, Mismatch):
            content = fingerprint(envelope.payload, self._once.fingerprint_key).hex()[:16]
            job = self._rejections.rejection((envelope.key, "mismatch", content), None, f"mismatch: {content}")
            await execute(self._once.engine, job)
        return response_for(outcome, mismatch_status=ACKNOWLEDGED)

    async def check_head(self, request: InboundRequest) -> Response | None:
        """Return None if the sender is allowed, else the refusal. A sync check may block: it never runs on the loop."""
        check = self._check
        if check is None:
            return None
        try:
            if inspect.iscoroutinefunction(check):
                allowed = await check(request)
            else:
                allowed = await self._once.engine.runtime.compute(check, request)
            if hasattr(allowed, "__await__"):  # an async callable that is not a coroutine function
                allowed = await (allowed if self.wanted_async else _refuse_awaitable(allowed))
        except (ValueError, PermissionError):
            allowed = False
        except Exception as error:  # noqa: BLE001 (the check failed, so the request is refused)
            self._emit_rejected("check_failed", type(error).__qualname__)
            return problem(503, "check_failed", "the check of the sender failed; deliver it again")
        if allowed is True:
            return None
        if isinstance(allowed, Refusal):
            self._emit_rejected(allowed.reason)
        elif allowed is None or allowed is False:
            self._emit_rejected("refused")
        else:  # for example a decoded token, which says nothing about whether this sender is allowed
            self._emit_rejected("check_failed", f"it returned {type(allowed).__name__}, not True, False or a Refusal")
            return problem(503, "check_failed", "the check of the sender failed; deliver it again")
        return problem(401, "refused", "the token is not valid", [("www-authenticate", "Bearer")])

    def _emit_rejected(self, reason: str, error: str = "") -> None:
        emit_event(self._once, "rejected", self.name, reason=reason, error=error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self._routes)} handlers>"


async def _refuse_awaitable(found: Any) -> bool:
    """Raise: a sync endpoint cannot await the result of its check."""
    if isinstance(found, CoroutineType):
        found.close()
    raise TypeError("the check returned an awaitable")


def _no_handler(_message: Any) -> None:
    """Stand in for the handler of messages that no handler accepts."""


async def _no_handler_async(_message: Any) -> None:
    """Async counterpart of `_no_handler`."""


class BasePubSubPush(BasePush):
    """Reads Pub/Sub envelopes."""

    def parse_envelope(self, request: InboundRequest) -> Envelope | str:
        return parse_pubsub(request)


class BaseCloudEventsPush(BasePush):
    """Reads CloudEvents."""

    def parse_envelope(self, request: InboundRequest) -> Envelope | str:
        return parse_cloudevent(request)


class PubSubPush(BasePubSubPush, Endpoint):
    """A Pub/Sub push endpoint: a WSGI application, or call `respond(request)`."""


class AsyncPubSubPush(BasePubSubPush, AsyncEndpoint):
    """A Pub/Sub push endpoint: an ASGI application, or call `await respond(request)`."""

    wanted_async = True


class CloudEventsPush(BaseCloudEventsPush, Endpoint):
    """An endpoint for CloudEvents: a WSGI application, or call `respond(request)`."""


class AsyncCloudEventsPush(BaseCloudEventsPush, AsyncEndpoint):
    """An endpoint for CloudEvents: an ASGI application, or call `await respond(request)`."""

    wanted_async = True
