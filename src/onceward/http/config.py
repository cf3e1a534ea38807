"""The settings of an idempotency middleware, and how a request becomes a job. Shared by ASGI and WSGI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from onceward.client.base import BaseClient
from onceward.engine.job import Job
from onceward.errors import ConfigurationError, InvalidKey, MissingKey, OncewardError, ResultCorrupt, ResultNotStored
from onceward.keys.key import Key, Scope, make_key
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.note import HTTP_REQUEST, KIND
from onceward.protocol.outcome import Outcome, Replayed
from onceward.protocol.policy import SECOND, ErrorTypes, OnLost, OnStoreDown, RetryDelay
from onceward.protocol.record import AfterCrash
from onceward.protocol.suggest import did_you_mean
from onceward.protocol.window import Window

from .delivery_work import as_tuple
from .quota import Quota, QuotaCounter
from .routes import Routes
from .semantics import (
    NO_PRINCIPAL,
    NOT_STORED,
    OVER_QUOTA,
    REPLAYED_HEADER,
    IdempotentRequest,
    Problem,
    RawResponse,
    decode_response,
    encode_response,
    error_response,
    fingerprint_request,
    outcome_response,
    parse_key,
    problem_response,
    window_header,
)
from .statuses import REDIRECTS, RETRY_STATUSES, RequestRefused

MAX_BODY: Final = 10_000_000
MAX_RESPONSE: Final = 1_000_000
"""Largest body of a response that is stored, in bytes."""

MAX_HEADERS: Final = (1 << 20) - MAX_RESPONSE
"""Bytes left for the headers. Every store accepts the sum of both."""

STALL_TIMEOUT: Final = "1m"
"""How long a client may take to accept one part of a response. With usual part sizes: under 1 kB per second."""

SETTLE_TIMEOUT: Final = 20 * SECOND
"""How long a finished response waits for the store: less than proxies and clients wait for the response."""

MAX_CACHED_SCOPES: Final = 10_000
"""Limit of the cache of scopes: clients choose the principals, so it must not grow without bound."""

CLIENT_ERROR: Final = 400
END_OF_STATUSES: Final = 600

HTTP_NOTE: Final = {KIND: HTTP_REQUEST}
"""On requests that may be parked."""

SAFE_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"))


class RouteOptions(TypedDict, total=False):
    """Settings that may differ between routes. Those from `window` on are the same as for `@once`."""

    name: str
    bare_keys: bool
    wait: Duration
    retry_after: Duration | None
    max_body: int
    max_response: int
    stall_timeout: Duration
    documentation: str | None
    challenge: str | None
    reauthorize: Callable[[Any], Any]
    quota: Quota | None
    retry_statuses: Iterable[int]
    not_stored_headers: Iterable[str]
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


class IdempotencyOptions(RouteOptions, total=False):
    """Settings in addition to the client and `principal`: which routes use keys, and how."""

    required: Iterable[str]
    optional: Iterable[str]
    methods: Iterable[str]


class IdempotencyConfig:
    """The checked settings of one middleware."""

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
        retry_after: Duration | None = None,
        max_body: int = MAX_BODY,
        max_response: int = MAX_RESPONSE,
        stall_timeout: Duration = STALL_TIMEOUT,
        documentation: str | None = None,
        challenge: str | None = None,
        reauthorize: Callable[[Any], Any] | None = None,
        quota: Quota | None = None,
        retry_statuses: Iterable[int] = RETRY_STATUSES,
        not_stored_headers: Iterable[str] = (),
        **settings: Any,
    ) -> None:
        _check_settings(principal, settings)
        _check_header("documentation", documentation, "<>")
        _check_header("challenge", challenge)
        _check_hooks(reauthorize, quota)
        self.principal = principal
        self.reauthorize: Callable[[Any], Any] = _allow_every_replay if reauthorize is None else reauthorize
        self._quota = None if quota is None else QuotaCounter(quota)
        self.routes = dict.fromkeys(_check_methods(methods), Routes(required, optional))
        self._retry_statuses = _check_statuses(retry_statuses)
        self.not_stored = _check_header_names(not_stored_headers)
        self.bare_keys = bare_keys
        self.max_body = max_body
        self.max_response = max_response
        self.documentation = documentation
        self.challenge = None if challenge is None else (b"www-authenticate", challenge.encode("ascii"))
        self.retry_after = None if retry_after is None else microseconds(retry_after, "retry_after") / SECOND
        self.stall_timeout = microseconds(stall_timeout, "stall_timeout") / SECOND
        if not self.stall_timeout:
            raise ConfigurationError(
                "stall_timeout is 0: no client accepts a response in no time", hint='pass a duration such as "1m"'
            )
        on_running = "wait" if microseconds(wait, "wait") else "raise"
        not_applied = (*client.policy.not_applied, *as_tuple(settings.pop("not_applied", ())), RequestRefused)
        own = client.using(
            **settings,
            on_running=on_running,
            wait=wait,
            not_applied=not_applied,
            final=(),  # the response status decides what may be retried
            retry=None,
            max_result_bytes=max_response + MAX_HEADERS,
        )
        if own.policy.settle_timeout is None:
            own = own.using(settle_timeout=timedelta(microseconds=SETTLE_TIMEOUT))
        self.policy = own.policy
        if self.policy.after_crash is AfterCrash.VERIFY:
            raise ConfigurationError(
                "after_crash=verify(find) does not work for a middleware: find would not know which request to check",
                hint='choose "rerun" or "park" here, and use verify on the function that has the effect',
            )
        self.engine = own.engine
        self.window = window_header(self.policy.window)
        self._codec = own.codec(bytes)
        self._scope = client.state_scope(name)
        if self._scope.tenant is not None:
            raise ConfigurationError(
                f"this client has tenant={self._scope.tenant!r}, but HTTP keys belong to the principal of the request",
                hint="pass a client without tenant=, and include the tenant in the value that principal= returns",
            )
        self._scopes: dict[str, Scope] = {}
        self._fingerprint_key = client.fingerprint_key

    def check_routes(self) -> None:
        """Raise if no route is configured: a middleware without routes is a mistake."""
        if not any(self.routes.values()):
            raise ConfigurationError(
                "no routes are configured", hint='list them: required=["/payments"], or optional=["*"] for all'
            )

    # ── the request ──

    def parse_key(self, values: list[bytes]) -> str:
        """Return the key. `values` are all values of the header."""
        if not values:
            raise MissingKey("Idempotency-Key is missing")
        if len(values) > 1:
            raise InvalidKey("the request has more than one Idempotency-Key header")
        return parse_key(values[0], bare=self.bare_keys)

    def check_principal(self, principal: Any) -> str | None:
        """Return the principal, or None if the request is not authenticated. Raise if it is not a str."""
        if principal is None or principal == "":
            return None
        if not isinstance(principal, str):
            raise ConfigurationError(
                f"principal= returned {type(principal).__name__}, not str",
                hint="return a str such as str(user.id), or None if the request is not authenticated",
            )
        return principal

    def job(self, key: str, request: IdempotentRequest, digest: bytes) -> Job:
        """Return the job of a request. The middleware itself calls the application."""
        own = make_key(self._scope_for(request.principal), key)
        fingerprint, parts = fingerprint_request(request, digest, own.id, self._fingerprint_key)
        is_async = self.engine.runtime.supports_cancellation
        return Job(own, self.policy, self._codec, fingerprint, parts, is_async=is_async, note=HTTP_NOTE)

    def _scope_for(self, principal: str) -> Scope:
        scope = self._scopes.get(principal)
        if scope is None:
            scope = Scope(self._scope.app, self._scope.operation, principal)
            if len(self._scopes) < MAX_CACHED_SCOPES:
                self._scopes[principal] = scope
        return scope

    def allows_replay(self, request: Any) -> bool:
        """Return whether a sync `reauthorize=` allows this caller to read the stored response."""
        try:
            allowed = self.reauthorize(request)
        except PermissionError:
            return False
        if hasattr(allowed, "__await__"):  # a coroutine is true, whatever it would return
            if hasattr(allowed, "close"):
                allowed.close()
            raise ConfigurationError(
                "reauthorize= is async, but only the ASGI middleware can await it", hint="pass a sync function"
            )
        return bool(allowed)

    # ── the response ──

    def frees_key(self, status: int) -> bool:
        """Return whether a response with this status allows the client to retry the same request."""
        return status in self._retry_statuses

    def encode_response(self, status: int, headers: Iterable[Iterable[bytes]], body: bytes) -> bytes | None:
        """Return the stored form of a response, or None if it is not valid HTTP."""
        return encode_response(status, headers, body, self.not_stored)

    def quota_response(self, job: Job) -> RawResponse | None:
        """Count the key. Return the refusal if its principal has used up the quota."""
        if self._quota is None:
            return None
        seconds = self._quota.admit(job.key.scope.tenant or "", job.key.id)
        if seconds is None:
            return None
        return problem_response(OVER_QUOTA, documentation=self.documentation, retry_after=seconds)

    def count_response(self, key: Key, size: int) -> None:
        """Count a part of a response towards the quota of its principal."""
        if self._quota is not None:
            self._quota.add_bytes(key.scope.tenant or "", size)

    def no_principal_response(self) -> RawResponse:
        response = self.problem_response(NO_PRINCIPAL)
        if self.challenge is None:
            return response
        return response._replace(headers=[*response.headers, self.challenge])

    def problem_response(self, problem: Problem) -> RawResponse:
        return problem_response(problem, documentation=self.documentation)

    def error_response(self, error: OncewardError) -> RawResponse:
        return error_response(error, documentation=self.documentation, retry_after=self.retry_after)

    def outcome_response(self, outcome: Outcome[Any]) -> RawResponse:
        """Return the response to a request that was not run now."""
        if isinstance(outcome, Replayed) and outcome.stored:
            return self.replay_response(outcome.value)
        return outcome_response(outcome, documentation=self.documentation, retry_after=self.retry_after)

    def replay_response(self, value: object) -> RawResponse:
        """Return the stored response, or 410 if `value` is None because it was not stored."""
        if not isinstance(value, bytes):
            return self.error_response(ResultNotStored())
        try:
            status, headers, body = decode_response(value)
        except ResultCorrupt as error:
            return self.error_response(error)
        return RawResponse(status, [*headers, REPLAYED_HEADER, self.window], body)


def _check_methods(methods: Iterable[str]) -> frozenset[str]:
    chosen = frozenset((methods,) if isinstance(methods, str) else methods)
    for method in chosen:
        if method in SAFE_METHODS or method != method.upper():
            raise ConfigurationError(
                f"{method!r} cannot be used with idempotency keys",
                hint="choose methods that change something, in upper case: POST, PATCH, PUT, DELETE",
            )
    return chosen


def _check_settings(principal: object, settings: Mapping[str, Any]) -> None:
    if not callable(principal):
        raise ConfigurationError(
            "principal= must be a function of the request that returns the owner of the key",
            hint="it keeps the keys of different users separate",
        )
    for name in settings:
        if name not in IdempotencyOptions.__optional_keys__:
            hint = did_you_mean(name, IdempotencyOptions.__optional_keys__, "settings are")
            raise ConfigurationError(f"there is no setting {name!r}", hint=hint)


def _check_statuses(statuses: Iterable[int]) -> frozenset[int]:
    chosen = frozenset(statuses)
    for status in chosen:
        if not isinstance(status, int) or status in REDIRECTS or not CLIENT_ERROR <= status < END_OF_STATUSES:
            raise ConfigurationError(
                f"retry_statuses= cannot contain {status!r}",
                hint="list statuses from 400 to 599; [*RETRY_STATUSES, 409] adds one to the default",
            )
    return chosen


def _check_header_names(names: Iterable[str]) -> frozenset[bytes]:
    added = [names] if isinstance(names, str) else [*names]
    for name in added:
        _check_header("not_stored_headers", name, ": ")
    return NOT_STORED.union(name.lower().encode("ascii") for name in added)


def _allow_every_replay(_request: Any) -> bool:
    return True


def _check_hooks(reauthorize: object, quota: object) -> None:
    if reauthorize is not None and not callable(reauthorize):
        raise ConfigurationError(
            "reauthorize= must be a function of the request that returns whether the caller may read the response",
            hint="such as reauthorize=lambda scope: may_read(scope)",
        )
    if quota is not None and not isinstance(quota, Quota):
        raise ConfigurationError(
            f"quota={quota!r} is not a Quota",
            hint="from onceward.http.quota import Quota; quota=Quota(keys=1000, bytes=10_000_000)",
        )


def _check_header(name: str, value: str | None, never: str = "") -> None:
    if value is not None and not (value.isascii() and value.isprintable() and set(never).isdisjoint(value)):
        raise ConfigurationError(
            f"{name}={value!r} cannot be sent in a header", hint="use printable ASCII only; percent-encode a URL"
        )
