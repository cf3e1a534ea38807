"""What an API declares about its keys, checked once; and how a request becomes a job. Shared by ASGI and WSGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from onceward.client.base import BaseClient
from onceward.engine.job import Job
from onceward.errors import ConfigurationError, InvalidKey, MissingKey, OncewardError, ResultNotStored
from onceward.keys.key import Scope, make_key
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.outcome import Outcome, Replayed
from onceward.protocol.policy import SECOND, ErrorTypes, OnLost, OnStoreDown, RetryDelay
from onceward.protocol.record import AfterCrash
from onceward.protocol.suggest import did_you_mean
from onceward.protocol.window import Window

from .http_settlement import RequestRefused
from .routes import Routes
from .semantics import (
    NO_PRINCIPAL,
    REPLAYED,
    HttpAnswer,
    IdempotentRequest,
    Problem,
    error_answer,
    kept_answer,
    marks,
    outcome_answer,
    parse_key,
    problem_answer,
    published,
)

MAX_BODY: Final = 10_000_000
MAX_ANSWER: Final = 1_000_000
"""Bytes of a body that is kept."""

ROOM_FOR_HEADERS: Final = (1 << 20) - MAX_ANSWER
"""Bytes beside them: together what every store takes."""

STALLED: Final = "1m"
"""So long a client may take to accept one part of an answer: less than a kilobyte a second, with the usual parts."""

SETTLED: Final = 20 * SECOND
"""So long a finished answer waits for the store: less than proxies and clients wait for the answer."""

MOST_PRINCIPALS: Final = 10_000
"""They come from outside: what is kept for speed must not grow with them."""

SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"))


class IdempotencyOptions(TypedDict, total=False):
    """What may be declared, beside the client and `principal`; from `window` on as for any other work."""

    required: Iterable[str]
    optional: Iterable[str]
    methods: Iterable[str]
    name: str
    bare_keys: bool
    wait: Duration
    retry_after: Duration
    max_body: int
    max_answer: int
    stall_timeout: Duration
    documentation: str | None
    challenge: str | None
    window: Window | Duration
    lease: Duration
    after_crash: Literal["rerun", "park"]
    max_attempts: int | None
    retry_delay: RetryDelay
    retry_span: Duration | None
    on_store_down: OnStoreDown
    on_lost: OnLost
    settle_timeout: Duration | None
    compress_from: int | None
    not_applied: ErrorTypes


class IdempotencyConfig:
    """The choices of one middleware."""

    def __init__(
        self,
        client: BaseClient,
        principal: Callable[[Any], Any],
        *,
        required: Iterable[str] = (),
        optional: Iterable[str] = (),
        methods: Iterable[str] = ("POST", "PATCH"),
        name: str = "http",
        bare_keys: bool = False,
        wait: Duration = 0,
        retry_after: Duration = 1,
        max_body: int = MAX_BODY,
        max_answer: int = MAX_ANSWER,
        stall_timeout: Duration = STALLED,
        documentation: str | None = None,
        challenge: str | None = None,
        **settings: Any,
    ) -> None:
        _check(principal, settings)
        _check_header("documentation", documentation, "<>")
        _check_header("challenge", challenge)
        self.principal = principal
        self.routes = dict.fromkeys(_unsafe(methods), Routes(required, optional))
        self.bare_keys = bare_keys
        self.max_body = max_body
        self.max_answer = max_answer
        self.documentation = documentation
        self.challenge = None if challenge is None else (b"www-authenticate", challenge.encode("ascii"))
        self.retry_after = microseconds(retry_after, "retry_after") / SECOND
        self.stall_timeout = microseconds(stall_timeout, "stall_timeout") / SECOND
        if not self.stall_timeout:
            raise ConfigurationError("stall_timeout is 0: nobody takes an answer in no time", hint='such as "1m"')
        on_running = "wait" if microseconds(wait, "wait") else "raise"
        harmless = (*client.policy.not_applied, *_types(settings.pop("not_applied", ())), RequestRefused)
        own = client.using(
            **settings,
            on_running=on_running,
            wait=wait,
            not_applied=harmless,
            final=(),  # what may be tried again is said by the status
            retry=None,
            max_result_bytes=max_answer + ROOM_FOR_HEADERS,
        )
        if own.policy.settle_timeout is None and own.policy.lease > SETTLED:
            own = own.using(settle_timeout=timedelta(microseconds=SETTLED))
        self.policy = own.policy
        if self.policy.after_crash is AfterCrash.VERIFY:
            raise ConfigurationError(
                "after_crash=verify(find) cannot hold for all requests: find would not know which one",
                hint='choose "rerun" or "park" here, and put verify on the function that has the effect',
            )
        self.engine = own.engine
        self.window = published(self.policy.window)
        self._codec = own.codec(bytes)
        self._scope = client.state_scope(name)
        if self._scope.tenant is not None:
            raise ConfigurationError(
                f"this client belongs to the tenant {self._scope.tenant!r}, and a key of HTTP belongs to its principal",
                hint="give a client without tenant=, and put the tenant into what principal= returns",
            )
        self._scopes: dict[str, Scope] = {}

    def check_routes(self) -> None:
        """Whoever chooses no route has forgotten it."""
        if not any(self.routes.values()):
            raise ConfigurationError(
                "no route was chosen", hint='name them: required=["/payments"], or optional=["*"] for all'
            )

    # ── the request ──

    def key(self, values: list[bytes]) -> str:
        """The key, of all the values that the header came with."""
        if not values:
            raise MissingKey("Idempotency-Key is missing")
        if len(values) > 1:
            raise InvalidKey("Idempotency-Key came more than once")
        return parse_key(values[0], bare=self.bare_keys)

    def checked_principal(self, principal: Any) -> str | None:
        """None: nobody. Everything that is no text is a mistake, and not somebody's name."""
        if principal is None or principal == "":
            return None
        if not isinstance(principal, str):
            raise ConfigurationError(
                f"principal= returned {type(principal).__name__}, not str",
                hint="such as str(user.id), or None for nobody",
            )
        return principal

    def job(
        self, key: str, request: IdempotentRequest, digest: bytes, call: Callable[[], Awaitable[None]] | None = None
    ) -> Job:
        """`call` does the work; without it, a block will."""
        own = make_key(self._scope_of(request.principal), key)
        fingerprint, parts = marks(request, digest, own.id)
        if call is None:
            return Job(own, self.policy, self._codec, fingerprint, parts)
        return Job(own, self.policy, self._codec, fingerprint, parts, call, awaits=True)

    def _scope_of(self, principal: str) -> Scope:
        scope = self._scopes.get(principal)
        if scope is None:
            scope = Scope(self._scope.app, self._scope.operation, principal)
            if len(self._scopes) < MOST_PRINCIPALS:
                self._scopes[principal] = scope
        return scope

    # ── the answer ──

    def no_principal(self) -> HttpAnswer:
        answer = self.problem(NO_PRINCIPAL)
        if self.challenge is None:
            return answer
        return answer._replace(headers=[*answer.headers, self.challenge])

    def problem(self, problem: Problem) -> HttpAnswer:
        return problem_answer(problem, documentation=self.documentation)

    def of_error(self, error: OncewardError) -> HttpAnswer:
        return error_answer(error, documentation=self.documentation, retry_after=self.retry_after)

    def of_outcome(self, outcome: Outcome[Any]) -> HttpAnswer:
        """The answer to a request that was not worked on now."""
        if isinstance(outcome, Replayed) and outcome.stored:
            return self.replay(outcome.value)
        return outcome_answer(outcome, documentation=self.documentation, retry_after=self.retry_after)

    def replay(self, value: object) -> HttpAnswer:
        """The answer that was kept. None: it was not."""
        if not isinstance(value, bytes):
            return self.of_error(ResultNotStored())
        status, headers, body = kept_answer(value)
        return HttpAnswer(status, [*headers, REPLAYED, self.window], body)


def _unsafe(methods: Iterable[str]) -> frozenset[str]:
    chosen = frozenset((methods,) if isinstance(methods, str) else methods)
    for method in chosen:
        if method in SAFE or method != method.upper():
            raise ConfigurationError(
                f"{method!r} is not a method that wants keys",
                hint="those that change something, in capitals: POST, PATCH, PUT, DELETE",
            )
    return chosen


def _types(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, tuple | list | set | frozenset) else (given,)


def _check(principal: object, settings: Mapping[str, Any]) -> None:
    if not callable(principal):
        raise ConfigurationError(
            "principal= says whose key it is: a function of the request", hint="keys of two users must never meet"
        )
    for name in settings:
        if name not in IdempotencyOptions.__optional_keys__:
            hint = did_you_mean(name, IdempotencyOptions.__optional_keys__, "settings are")
            raise ConfigurationError(f"there is no setting {name!r}", hint=hint)


def _check_header(name: str, value: str | None, never: str = "") -> None:
    if value is not None and not (value.isascii() and value.isprintable() and set(never).isdisjoint(value)):
        raise ConfigurationError(
            f"{name}={value!r} cannot be sent in a header", hint="printable ASCII only; an address in its encoded form"
        )
