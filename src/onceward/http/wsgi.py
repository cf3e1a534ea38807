"""Idempotency-Key middleware for any WSGI application.

    app = IdempotencyMiddleware(app, once, principal=user_of, required=["/payments"], optional=["/orders/*"])

The blocking counterpart of `asgi`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from onceward.client.sync import Once
from onceward.engine.job import Job
from onceward.engine.runner import lookup_outcome
from onceward.errors import (
    AlreadyDone,
    ClaimError,
    ConfigurationError,
    InvalidKey,
    NotAcquired,
    ResultError,
    StoreError,
)
from onceward.operations.block import ClaimBlock
from onceward.protocol.outcome import Replayed

from .body import CHUNK_SIZE, Body, BodyTooLarge
from .config import IdempotencyConfig, IdempotencyOptions
from .multipart import split_boundary
from .request_context import RequestContext, request_without_key
from .semantics import (
    BODY_CUT_OFF,
    BODY_TOO_LARGE,
    MAX_LENGTH_DIGITS,
    NO_LONGER_ALLOWED,
    IdempotentRequest,
    RawResponse,
)
from .wsgi_response import App, Environ, StartResponse, WsgiResponse, send_response

__all__ = ["IdempotencyMiddleware"]


class IdempotencyMiddleware:
    """Runs each request with an `Idempotency-Key` once, and sends the stored response to its duplicates.

    Args:
        app: The WSGI application to protect.
        once: The client that stores responses: a `Once`.
        principal: `principal(environ)` returns the authenticated owner of the key as a str, or None.
        choices: Which routes use keys (`required`, `optional`, `methods`), and how. The HTTP guide lists the settings.

    Raises:
        ConfigurationError: `once` is async, no route is chosen, or a setting cannot work.
    """

    def __init__(
        self,
        app: App,
        once: Once,
        *,
        principal: Callable[[Environ], Any],
        **choices: Unpack[IdempotencyOptions],
    ) -> None:
        if not isinstance(once, Once):
            raise ConfigurationError(f"{once!r} is not a client for WSGI", hint="pass a Once")
        self.app = app
        self.config = config = IdempotencyConfig(once, principal, **choices)
        config.check_routes()
        self._routes = config.routes

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request as a WSGI application, and return its body. Requests without a rule pass through unchanged.

        `environ` and `start_response` are those of WSGI.
        """
        routes = self._routes.get(environ["REQUEST_METHOD"].upper())
        if routes is not None:
            required = routes.required(_path(environ))
            if required is not None:
                key = environ.get("HTTP_IDEMPOTENCY_KEY")
                if key is not None or required:
                    return self._handle(environ, start_response, [] if key is None else [key])
                if self.config.check_principal(self.config.principal(environ)) is None:
                    return send_response(start_response, self.config.no_principal_response())
                with request_without_key(environ):
                    return self.app(environ, start_response)
        return self.app(environ, start_response)

    def _handle(self, environ: Environ, start_response: StartResponse, keys: list[str]) -> Iterable[bytes]:
        """Read the principal, key and body; then run the application once, or refuse the request."""
        config = self.config
        principal = config.check_principal(config.principal(environ))
        if principal is None:
            return send_response(start_response, config.no_principal_response())
        try:
            key = config.parse_key([_latin1_bytes(key) for key in keys])
            content_type, boundary = split_boundary(_latin1_bytes(environ.get("CONTENT_TYPE", "")))
            body = read_body(environ, config.max_body, boundary)
        except InvalidKey as error:
            return send_response(start_response, config.error_response(error))
        except BodyTooLarge:
            return send_response(start_response, config.problem_response(BODY_TOO_LARGE))
        if body is None:
            return send_response(start_response, config.problem_response(BODY_CUT_OFF))
        request = IdempotentRequest(
            principal,
            environ["REQUEST_METHOD"],
            _latin1_bytes(environ.get("HTTP_HOST", "")).lower(),
            _latin1_bytes(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")),
            _latin1_bytes(environ.get("QUERY_STRING", "")),
            content_type,
        )
        job = config.job(key, request, body.end())
        over_quota = config.quota_response(job)
        if over_quota is not None:
            body.close()
            return send_response(start_response, over_quota)
        environ["wsgi.input"], environ["onceward.key"] = body.stream(), key
        return self._run_once(job, environ, start_response, body)

    def _run_once(self, job: Job, environ: Environ, start_response: StartResponse, body: Body) -> Iterable[bytes]:
        found = self._claim(job, environ)
        if isinstance(found, RawResponse):
            body.close()
            return send_response(start_response, found)
        response = WsgiResponse(self.config, found, RequestContext(self.config, environ), body, start_response)
        response.begin(self.app, environ)
        return response

    def _claim(self, job: Job, environ: Environ) -> ClaimBlock | RawResponse:
        """Return the entered block if the application may run, else the response to send."""
        config = self.config
        try:
            done = lookup_outcome(config.engine, job)
            if done is not None:
                refusal = self._replay_refusal(environ) if isinstance(done, Replayed) else None
                return refusal or config.outcome_response(done)
            block = ClaimBlock(config.engine, job)
            block.__enter__()
        except AlreadyDone as error:
            return self._replay_refusal(environ) or config.replay_response(error.value)
        except (NotAcquired, ClaimError, ResultError, StoreError) as error:
            return config.error_response(error)
        return block

    def _replay_refusal(self, environ: Environ) -> RawResponse | None:
        """Return the refusal if `reauthorize=` no longer allows this caller to read the stored response."""
        allowed = self.config.allows_replay(environ)
        return None if allowed else self.config.problem_response(NO_LONGER_ALLOWED)


def read_body(environ: Environ, limit: int, boundary: bytes = b"") -> Body | None:
    """Return the body, or None if the client disconnected before it was complete.

    Without a content length there is no body, unless the server marks its end. A multipart body has a `boundary`
    and is hashed by its parts.
    """
    length = environ.get("CONTENT_LENGTH") or ""
    has_length = length.isdecimal() and length.isascii()
    if has_length and (len(length) > MAX_LENGTH_DIGITS or int(length) > limit):
        raise BodyTooLarge
    left = int(length) if has_length else None
    body = Body(limit, boundary)
    if left is None and not environ.get("wsgi.input_terminated"):
        return body
    try:
        while left is None or left > 0:
            chunk = environ["wsgi.input"].read(CHUNK_SIZE if left is None else min(CHUNK_SIZE, left))
            if not chunk:
                break
            body.add(chunk)
            body.flush()
            left = None if left is None else left - len(chunk)
    except BaseException:
        body.close()
        raise
    if left:
        body.close()
        return None
    return body


def _latin1_bytes(text: str) -> bytes:
    """Return the bytes as received: WSGI decodes them as latin-1."""
    return text.encode("latin-1", "backslashreplace")


def _path(environ: Environ) -> str:
    """Return the path as frameworks compare it, with one leading slash. Flask accepts any number of them."""
    path: str = environ.get("PATH_INFO", "")
    if not path.isascii():
        path = _latin1_bytes(path).decode("utf-8", "replace")
    return f"/{path.lstrip('/')}"
