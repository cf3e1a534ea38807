"""Push endpoints: a broker posts each message until it is acknowledged.

    may it push? ── no ──→ 401
        │ yes
    an envelope with an id? ── no ──→ 400
        │ yes
    a JSON object of a known shape? ── no ──→ recorded as FAILED for good, told as `rejected`, 204
        │ yes
    its handler, once under the message id ──→ the answer that its outcome means (see `delivered`)

A handler that knows duplicates itself, as a state does, is declared with `claim=False` and returns the outcome.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any, ClassVar, Final, TypeVar, Unpack

import msgspec

from onceward.client.base import BaseClient
from onceward.engine.error_text import message_of
from onceward.engine.execute import execute
from onceward.engine.job import Job
from onceward.errors import ConfigurationError, OncewardError
from onceward.keys.fingerprint import fingerprint
from onceward.keys.weight import LIGHT_BYTES
from onceward.operations.operation import label_of
from onceward.protocol.outcome import Mismatch, Outcome, is_outcome
from onceward.protocol.policy import Defaults

from .delivery_status import answer_to, is_trouble, trouble
from .delivery_work import Work, awaits, refuse_colour, refuse_face, tell
from .endpoint import LIMIT, Answering, AsyncEndpoint, Endpoint
from .envelope import Envelope, PushMessage, cloudevent, pubsub
from .messages import InboundRequest, Response, problem
from .routing import Match, Shape
from .tokens import Check, bearer_token, query_token

__all__ = [
    "AsyncCloudEventsPush",
    "AsyncPubSubPush",
    "CloudEventsPush",
    "InboundRequest",
    "PubSubPush",
    "PushMessage",
    "Response",
    "bearer_token",
    "query_token",
]

Handler = TypeVar("Handler", bound=Callable[..., Any])

ACKNOWLEDGED: Final = 200
REASONS: Final = {"executed": "applied", "done": "duplicate_message_noop"}
RETRY_SPAN: Final = "7d"
"""How long Pub/Sub delivers a message again by default."""


class Route(msgspec.Struct, frozen=True):
    """Which messages, by whom, and whether each is claimed."""

    match: Match
    work: Work
    claim: bool


class Unroutable(msgspec.Struct, frozen=True):
    """A good envelope that no handler can take. `reason` is one word, `why` tells it to a person."""

    envelope: Envelope
    reason: str
    why: str


class Routed(msgspec.Struct, frozen=True):
    """A message with its handler; `job` None: it is not claimed."""

    envelope: Envelope
    route: Route
    message: PushMessage[Any]
    job: Job | None


class Pushed(Answering):
    """The flow, in both colours and for every kind of envelope."""

    wanted_async: ClassVar[bool] = False

    def __init__(
        self, once: BaseClient, name: str, *, check: Check | None, limit: int = LIMIT, **choices: Unpack[Defaults]
    ) -> None:
        """`name` is the operation, one for each topic; `check` says who may push, and None means everybody."""
        super().__init__(limit)
        refuse_face(once, wanted_async=self.wanted_async, what=type(self).__name__.removeprefix("Async"))
        if check is not None and not self.wanted_async and inspect.iscoroutinefunction(check):
            raise ConfigurationError(f"{label_of(check)} is async, and a blocking endpoint cannot await it")
        self.name = name
        self._once = once
        self._check = check
        self._choices = choices
        self._routes: list[Route] = []
        self._rejecting = self._work(_nobody_async if awaits(once) else _nobody, {})

    def on(
        self,
        shape: Shape = None,
        *,
        attributes: Mapping[str, str] | None = None,
        claim: bool = True,
        **choices: Unpack[Defaults],
    ) -> Callable[[Handler], Handler]:
        """Decorate the handler of messages with this shape and these attributes. The first one that fits takes it.

        `shape` is a class, or the names of members. `claim=False`: the handler knows duplicates itself (a state does),
        and returns the `Outcome`.
        """
        match = Match(shape, attributes)
        unheard = sorted(choices.keys() - {"final"})
        if unheard and not claim:
            raise ConfigurationError(
                f"{self.name}: on({unheard[0]}=…) has no effect without a claim", hint="only final= has; leave it out"
            )
        if self._routes and self._routes[-1].match.matches_all:
            raise ConfigurationError(f"{self.name}: the handler before takes every message", hint="declare it last")

        def decorate(handler: Handler) -> Handler:
            self._routes.append(Route(match, self._work(handler, choices), claim))
            return handler

        return decorate

    @property
    def handlers(self) -> tuple[Callable[..., Any], ...]:
        """Those that a message can reach, in the order in which they are asked."""
        return tuple(route.work.handler for route in self._routes)

    def _work(self, handler: Callable[..., Any], choices: Mapping[str, Any]) -> Work:
        refuse_colour(self._once, handler)
        defaults = {"retry_span": RETRY_SPAN, "reasons": REASONS}
        return Work(self._once, self.name, handler, defaults, {**self._choices, **choices})

    def open(self, request: InboundRequest) -> Envelope | str:
        """The envelope of a request, or why there is none."""
        raise NotImplementedError

    # ── the flow ──

    async def answer(self, request: InboundRequest) -> Response:
        refusal = await self._admitted(request)
        if refusal is not None:
            return refusal
        runtime = self._once.engine.runtime
        quick = len(request.body) <= LIGHT_BYTES
        found = self._read(request) if quick else await runtime.think(self._read, request)
        if isinstance(found, Response):
            return found
        if isinstance(found, Unroutable):
            return await self._rejected(found)
        if found.job is None:
            return await self._handed_over(found)
        return await self._told(await execute(found.route.work.engine, found.job), found.envelope)

    def _read(self, request: InboundRequest) -> Routed | Unroutable | Response:
        """Everything that needs no store."""
        envelope = self.open(request)
        if isinstance(envelope, str):
            self._tell("no_envelope")
            return problem(400, "no_envelope", envelope)
        opened = envelope.opened()
        if isinstance(opened, str):
            return Unroutable(envelope, "undecodable_data", opened)
        for route in self._routes:
            message = route.match.fit(opened)
            if message is not None:
                job = route.work.job(envelope.key, envelope.payload, message) if route.claim else None
                return Routed(envelope, route, message, job)
        members = f"its members are {', '.join(sorted(opened.payload))[:200]}" if opened.data else "it has no data"
        return Unroutable(envelope, "unknown_shape", members)

    async def _rejected(self, found: Unroutable) -> Response:
        """Recorded as failed for good under its id, so that somebody can look at it; never an error to the broker."""
        work = self._rejecting
        job = work.rejection(found.envelope.key, found.envelope.payload, f"{found.reason}: {found.why}")
        outcome = await execute(work.engine, job)
        tell(self._once, "rejected", self.name, job.key.text, reason=found.reason)
        return await self._told(outcome, found.envelope)

    async def _handed_over(self, found: Routed) -> Response:
        """A handler that knows duplicates itself. What can never be applied is recorded as the router's rejects are."""
        work = found.route.work
        try:
            outcome = work.handler(found.message)
            if self.wanted_async and hasattr(outcome, "__await__"):
                outcome = await outcome
        except work.client.policy.final as error:
            return await self._rejected(Unroutable(found.envelope, "unusable_data", message_of(error)))
        except Exception as error:  # noqa: BLE001 (whatever it is, the broker shall deliver it again)
            return self._failed(found.envelope, error)
        if not is_outcome(outcome):
            raise ConfigurationError(
                f"{label_of(work.handler)} returned {type(outcome).__name__}, not an Outcome",
                hint="with claim=False it says what happened: return state.apply(…)",
            )
        return await self._told(outcome, found.envelope)

    def _failed(self, envelope: Envelope, error: Exception) -> Response:
        key = self._once.key(envelope.key, name=self.name)
        tell(self._once, "failed", self.name, key.text, error=type(error).__qualname__)
        if isinstance(error, OncewardError) and is_trouble(error):
            return trouble(error)
        return problem(500, "failed", "the work failed; deliver it again")

    async def _told(self, outcome: Outcome[Any], envelope: Envelope) -> Response:
        """What is acknowledged without having been done leaves a record: of a mismatch, under a key of its own."""
        if isinstance(outcome, Mismatch):
            content = fingerprint(envelope.payload).hex()[:16]
            job = self._rejecting.rejection((envelope.key, "mismatch", content), None, f"mismatch: {content}")
            await execute(self._once.engine, job)
        return answer_to(outcome, mismatch_status=ACKNOWLEDGED)

    async def _admitted(self, request: InboundRequest) -> Response | None:
        """None if it may push. A check may take its time, so that it never runs on the thread of a loop."""
        check = self._check
        if check is None:
            return None
        try:
            if inspect.iscoroutinefunction(check):
                may = await check(request)
            else:
                may = await self._once.engine.runtime.think(check, request)
            if hasattr(may, "__await__"):  # of an async callable that does not look like one: true, whatever it finds
                may = await (may if self.wanted_async else _unawaitable(may))
        except (ValueError, PermissionError):
            may = False
        except Exception as error:  # noqa: BLE001 (it cannot tell, so nobody passes)
            self._tell("check_failed", type(error).__qualname__)
            return problem(503, "check_failed", "nobody could tell whether this may pass; deliver it again")
        if may:
            return None
        self._tell("refused")
        return problem(401, "refused", "the token does not hold", [("www-authenticate", "Bearer")])

    def _tell(self, reason: str, error: str = "") -> None:
        tell(self._once, "rejected", self.name, reason=reason, error=error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self._routes)} handlers>"


async def _unawaitable(found: Any) -> bool:
    """A blocking endpoint cannot await what its check gave, so that nobody knows."""
    if isinstance(found, CoroutineType):
        found.close()
    raise TypeError("the check returned an awaitable")


def _nobody(_message: Any) -> None:
    """The handler of what nobody handles."""


async def _nobody_async(_message: Any) -> None:
    """As `_nobody`."""


class PubSub(Pushed):
    """Of Pub/Sub."""

    def open(self, request: InboundRequest) -> Envelope | str:
        return pubsub(request)


class CloudEvents(Pushed):
    """Of CloudEvents."""

    def open(self, request: InboundRequest) -> Envelope | str:
        return cloudevent(request)


class PubSubPush(PubSub, Endpoint):
    """A Pub/Sub push endpoint: a WSGI application, or `respond(request)`."""


class AsyncPubSubPush(PubSub, AsyncEndpoint):
    """A Pub/Sub push endpoint: an ASGI application, or `await respond(request)`."""

    wanted_async = True


class CloudEventsPush(CloudEvents, Endpoint):
    """An endpoint for CloudEvents: a WSGI application, or `respond(request)`."""


class AsyncCloudEventsPush(CloudEvents, AsyncEndpoint):
    """An endpoint for CloudEvents: an ASGI application, or `await respond(request)`."""

    wanted_async = True
