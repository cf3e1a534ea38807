"""Idempotency-Key middleware for any ASGI application.

    app = IdempotencyMiddleware(app, once, principal=user_of, required=["/payments"], optional=["/orders/*"])

Requests on other routes, with other methods or without a key pass through unchanged. For a request with a key, the
middleware reads the body, claims the key and runs the application once. The application runs in its own task, which
continues if the client disconnects.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar, Unpack

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.engine.abandon import abandon
from onceward.engine.attempt import Attempt
from onceward.engine.conclude import verify_first
from onceward.engine.job import Job
from onceward.engine.runner import claim_one, lookup_outcome
from onceward.errors import ClaimError, ConfigurationError, InvalidKey, NotAcquired, ResultError, StoreError
from onceward.protocol.outcome import Executed, Failed, Outcome, Parked, Replayed
from onceward.protocol.runtime import Runtime

from .body import MAX_INLINE_HASH, Body, BodyTooLarge
from .config import IdempotencyConfig, IdempotencyOptions
from .http_settlement import SettlementFailed
from .multipart import split_boundary
from .request_context import RequestContext, request_without_key
from .request_run import RequestRun
from .response_buffer import App, Message, Receive, Scope, Send
from .routes import Routes
from .semantics import (
    BODY_TOO_LARGE,
    KEY_HEADER,
    MAX_LENGTH_DIGITS,
    NO_LONGER_ALLOWED,
    IdempotentRequest,
    RawResponse,
)
from .transaction import RequestTransaction

__all__ = ["IdempotencyMiddleware"]

T = TypeVar("T", bound=RequestTransaction)

# Server extensions that bypass `send`. An application that does not find them uses plain messages.
_BYPASS_EXTENSIONS = frozenset(("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"))

_SET_BY_MIDDLEWARES: Final = ("user", "auth", "session")
_ORDER_HINT: Final = (
    "use idempotency.protect(app), which makes it the innermost; with app.add_middleware, add the idempotency"
    " middleware first, because the one that is added last runs first"
)


class Authenticated(NamedTuple):
    """The principal of a request, and the rest of its body."""

    principal: str
    receive: Receive


class IdempotencyMiddleware:
    """Runs each request with an `Idempotency-Key` once, and sends the stored response to its duplicates.

    Args:
        app: The ASGI application to protect.
        once: The client that stores responses. For a `Once`, its async twin `once.aio` is used.
        principal: `principal(scope)` returns the authenticated owner of the key as a str, or None. It may be async.
        choices: Which routes use keys (`required`, `optional`, `methods`), and how. The HTTP guide lists the settings.

    Raises:
        ConfigurationError: No route is chosen, or a setting cannot work.
    """

    def __init__(
        self,
        app: App,
        once: AsyncOnce | Once,
        *,
        principal: Callable[[Scope], Any],
        **choices: Unpack[IdempotencyOptions],
    ) -> None:
        self.app = app
        self.config = IdempotencyConfig(_async_client(once), principal, **choices)
        self._routes = self._select_routes()

    def _select_routes(self) -> dict[str, Routes]:
        self.config.check_routes()
        return self.config.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request as an ASGI application. Requests without a rule pass through unchanged.

        `scope`, `receive` and `send` are those of ASGI.
        """
        if scope["type"] == "http" and (routes := self._routes.get(scope["method"].upper())) is not None:
            path, root = scope["path"], scope.get("root_path")
            required = routes.required(path_below(root, path) if root else path)
            if required is not None:
                keys = [value for name, value in scope["headers"] if name == KEY_HEADER]
                if keys or required:
                    prepared = await self._prepare(scope, receive, send, keys)
                    if prepared is not None:
                        await self._run_once(scope, *prepared)
                    return
                authenticated = await self._authenticate(scope, receive, send)
                if authenticated is not None:
                    with request_without_key(scope):
                        await self.app(scope, authenticated.receive, send)
                return
        await self.app(scope, receive, send)

    async def _prepare(
        self, scope: Scope, receive: Receive, send: Send, keys: list[bytes]
    ) -> tuple[RequestRun, Job] | None:
        """Read the principal, key and body. Return None if the request was refused or the client disconnected."""
        config = self.config
        authenticated = await self._authenticate(scope, receive, send)
        if authenticated is None:
            return None
        principal, receive = authenticated
        try:
            key = config.parse_key(keys)
        except InvalidKey as error:
            await send_response(send, config.error_response(error))
            return None
        host, content_type, length = _request_headers(scope["headers"])
        content_type, boundary = split_boundary(content_type)
        try:
            body, digest = await read_body(receive, length, config.max_body, config.engine.runtime, boundary)
        except BodyTooLarge:
            await send_response(send, config.problem_response(BODY_TOO_LARGE))
            return None
        if body is None:  # the client disconnected while sending the body: nothing was started
            return None
        path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
        query = scope.get("query_string", b"")
        request = IdempotentRequest(principal, scope["method"], host, path, query, content_type)
        scope["onceward.key"] = key
        _hide_bypass_extensions(scope)
        request_run = RequestRun(self.app, scope, send, config, body)
        job = config.job(key, request, digest)
        over_quota = config.quota_response(job)
        if over_quota is not None:
            await request_run.send_refusal(over_quota)
            return None
        return request_run, job

    async def _authenticate(self, scope: Scope, receive: Receive, send: Send) -> Authenticated | None:
        """Return the principal. Without one, send the refusal and return None."""
        try:
            found = self.config.principal(scope)
            if hasattr(found, "__await__"):
                found = await found
        except (AssertionError, KeyError) as error:
            raise _explain_order(error, scope) from error
        return await self._admit(found, receive, send)

    async def _admit(self, found: Any, receive: Receive, send: Send) -> Authenticated | None:
        principal = self.config.check_principal(found)
        if principal is None:
            await send_response(send, self.config.no_principal_response())
            return None
        return Authenticated(principal, receive)

    async def _run_once(self, scope: Scope, request_run: RequestRun, job: Job) -> None:
        """Run the application once, or send the response that explains why it was not run."""
        config = self.config
        attempt = Attempt(config.engine, job)
        attempt.integration = RequestContext(config, scope, asyncio.get_running_loop())
        try:
            outcome = await _claim(attempt)
            if outcome is None:
                outcome = await request_run.finish_app(attempt, await request_run.start_app(attempt))
        except (NotAcquired, ClaimError, ResultError, StoreError) as error:
            if request_run.response_started:
                raise
            await request_run.send_refusal(config.error_response(error))
            return
        except BaseException as error:
            await request_run.abandon(attempt, error)
            raise
        if isinstance(outcome, Failed | Parked) and outcome.exception is not None:
            if not isinstance(outcome.exception, SettlementFailed) or request_run.truncated:
                raise outcome.exception
        elif outcome is not None and not isinstance(outcome, Executed):
            if request_run.response_started:
                outcome.unwrap()  # the lease was lost while sending: raise, so that the server aborts the response
            refused = isinstance(outcome, Replayed) and not await _allows_replay(config, scope)
            response = config.problem_response(NO_LONGER_ALLOWED) if refused else config.outcome_response(outcome)
            await request_run.send_refusal(response)
        if request_run.send_error is not None and not isinstance(request_run.send_error, OSError):
            raise request_run.send_error


class AsgiIdempotency(Generic[T]):
    """What the integrations of ASGI frameworks share: the settings of one API.

    Args:
        once: The client that stores responses.
        principal: `principal(scope)` returns the authenticated owner of the key as a str, or None. It may be async.
        choices: Which routes use keys, and how, as for `onceward.http.asgi.IdempotencyMiddleware`.
    """

    _transaction_type: type[T]

    def __init__(
        self, once: AsyncOnce | Once, *, principal: Callable[[Scope], Any], **choices: Unpack[IdempotencyOptions]
    ) -> None:
        self._once = once
        self._principal = principal
        self._choices = choices

    def transaction(self, session: Any) -> T:
        """Return a block that commits the `session` together with the response: `with`, or `async with` if it is async.

        The block commits at its end. It rolls back if it raises, or if it ends without `tx.respond(…)`.
        """
        return self._transaction_type(session)


async def _claim(attempt: Attempt) -> Outcome[Any] | None:
    """Claim the key of a request. Return the outcome if the application must not run. None: it may."""
    replayed = lookup_outcome(attempt.engine, attempt.job)
    if replayed is not None:
        return replayed
    try:
        refused = await claim_one(attempt)
        if refused is None and attempt.record.ask_first:
            return await verify_first(attempt)
    except BaseException as error:
        await abandon([attempt], error)
        raise
    return refused


async def read_body(
    receive: Receive, length: int | None, limit: int, runtime: Runtime, boundary: bytes = b""
) -> tuple[Message | Body | None, bytes]:
    """Return the body and its hash; None if the client disconnected. A small body stays the message it came in.

    `boundary` is that of a multipart body, which is hashed by its parts.
    """
    if length is not None and length > limit:
        raise BodyTooLarge
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body") and not boundary:
        data = message.get("body", b"")
        if len(data) <= min(MAX_INLINE_HASH, limit):
            return message, hashlib.sha256(data).digest()
    body = Body(limit, boundary)
    try:
        while message["type"] == "http.request":
            body.add(message.get("body", b""))
            if not message.get("more_body"):
                return body, await runtime.compute(body.end) if body.needs_thread else body.end()
            if body.should_flush:
                await runtime.compute(body.flush)
            message = await receive()
    except BaseException:
        body.close()
        raise
    body.close()
    return None, b""


def path_below(root: str, path: str) -> str:
    """Return the path within an application mounted at `root`. Not every server includes `root` in the path."""
    rest = path.removeprefix(root)
    return rest if rest.startswith("/") else path


def _explain_order(error: Exception, scope: Any) -> Exception:
    """Return an error that explains the wrong order of middleware; `error` itself if it has another cause."""
    text = str(error.args[0]) if error.args else ""
    missing = [name for name in _SET_BY_MIDDLEWARES if name not in scope]
    if isinstance(error, AssertionError):  # raised by Starlette for `request.user` and `request.session`
        missing = [name for name in missing if f"request.{name}" in text]
    else:
        missing = [name for name in missing if name == text]
    if not missing:
        return error
    return ConfigurationError(
        f"principal= needs scope[{missing[0]!r}], which no middleware has set before the idempotency middleware",
        hint=_ORDER_HINT,
    )


async def send_response(send: Send, response: RawResponse) -> None:
    """Send a whole `response` (status, headers, body) with the `send` function of ASGI."""
    status, headers, body = response
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _allows_replay(config: IdempotencyConfig, scope: Scope) -> bool:
    """Call `reauthorize=`, which may be async."""
    try:
        found = config.reauthorize(scope)
        return bool(await found if hasattr(found, "__await__") else found)
    except PermissionError:
        return False


def _request_headers(headers: Any) -> tuple[bytes, bytes, int | None]:
    """Return host, content type and length. Ignore an invalid length: the server has already framed the body."""
    host, content_type, length = b"", b"", None
    for name, value in headers:
        if name == b"content-type":
            content_type = value
        elif name == b"host":
            host = value.lower()
        elif name == b"content-length" and value.isdigit() and len(value) <= MAX_LENGTH_DIGITS:
            length = int(value)
    return host, content_type, length


def _hide_bypass_extensions(scope: Scope) -> None:
    extensions = scope.get("extensions")
    if extensions and not _BYPASS_EXTENSIONS.isdisjoint(extensions):
        scope["extensions"] = {name: each for name, each in extensions.items() if name not in _BYPASS_EXTENSIONS}


def _async_client(once: AsyncOnce | Once) -> AsyncOnce:
    if isinstance(once, Once):
        return once.aio
    if not isinstance(once, AsyncOnce):
        raise ConfigurationError(f"{once!r} is not a client", hint="pass an AsyncOnce or a Once")
    return once
