"""Idempotency-Key for every WSGI application.

    app = IdempotencyMiddleware(app, once, principal=user_of, required=["/payments"], optional=["/orders/*"])

As `asgi`, in the blocking colour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from onceward.client.sync import Once
from onceward.engine.execute import at_a_glance
from onceward.engine.job import Job
from onceward.errors import (
    NOT_DOWN,
    AlreadyDone,
    ClaimError,
    ConfigurationError,
    InvalidKey,
    NotAcquired,
    ResultError,
    StoreError,
)
from onceward.operations.block import ClaimBlock

from .body import MOST_DIGITS, PIECE, Body, BodyTooLarge
from .config import IdempotencyConfig, IdempotencyOptions
from .semantics import BODY_CUT_OFF, BODY_TOO_LARGE, HttpAnswer, IdempotentRequest
from .wsgi_response import App, Environ, StartResponse, WsgiResponse, say


class IdempotencyMiddleware:
    """`principal(environ)` says whose key it is: a str, or None for nobody. It must authenticate."""

    def __init__(
        self,
        app: App,
        once: Once,
        *,
        principal: Callable[[Environ], Any],
        **choices: Unpack[IdempotencyOptions],
    ) -> None:
        if not isinstance(once, Once):
            raise ConfigurationError(f"{once!r} is no client for WSGI", hint="give a Once")
        self.app = app
        self.contract = contract = IdempotencyConfig(once, principal, **choices)
        contract.check_routes()
        self._routes = contract.routes

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        routes = self._routes.get(environ["REQUEST_METHOD"].upper())
        if routes is not None:
            required = routes.required(_path(environ))
            if required is not None:
                key = environ.get("HTTP_IDEMPOTENCY_KEY")
                if key is not None or required:
                    return self._answer(environ, start_response, [] if key is None else [key])
        return self.app(environ, start_response)

    def _answer(self, environ: Environ, start_response: StartResponse, keys: list[str]) -> Iterable[bytes]:
        """Who it is, which key, which body; then the work, or why not."""
        contract = self.contract
        principal = contract.checked_principal(contract.principal(environ))
        if principal is None:
            return say(start_response, contract.no_principal())
        try:
            key = contract.key([_bytes(one) for one in keys])
            body = read(environ, contract.max_body)
        except InvalidKey as error:
            return say(start_response, contract.of_error(error))
        except BodyTooLarge:
            return say(start_response, contract.problem(BODY_TOO_LARGE))
        if body is None:
            return say(start_response, contract.problem(BODY_CUT_OFF))
        request = IdempotentRequest(
            principal,
            environ["REQUEST_METHOD"],
            _bytes(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")),
            _bytes(environ.get("QUERY_STRING", "")),
            _bytes(environ.get("CONTENT_TYPE", "")),
        )
        job = contract.job(key, request, body.end())
        environ["wsgi.input"], environ["onceward.key"] = body.stream(), key
        return self._work(job, environ, start_response, body)

    def _work(self, job: Job, environ: Environ, start_response: StartResponse, body: Body) -> Iterable[bytes]:
        found = self._claim(job)
        if found is None:
            return self.app(environ, start_response)
        if isinstance(found, HttpAnswer):
            body.close()
            return say(start_response, found)
        answer = WsgiResponse(self.contract, found, body, start_response)
        answer.begin(self.app, environ)
        return answer

    def _claim(self, job: Job) -> ClaimBlock | HttpAnswer | None:
        """The block of a key that is ours, or the answer to one that is not. None: run it unprotected."""
        contract = self.contract
        try:
            done = at_a_glance(contract.engine, job)
            if done is not None:
                return contract.of_outcome(done)
            block = ClaimBlock(contract.engine, job)
            block.__enter__()
        except AlreadyDone as error:
            return contract.replay(error.value)
        except (NotAcquired, ClaimError, ResultError, StoreError) as error:
            down = isinstance(error, StoreError) and not isinstance(error, NOT_DOWN)
            if contract.policy.on_store_down != "run" or not down:
                return contract.of_error(error)
            contract.engine.emit("unprotected", job.key, reason=f"store down: {error}")
            return None
        return block


def read(environ: Environ, limit: int) -> Body | None:
    """The body; None if the client has left before it was whole. Without a length there is none, unless it ends."""
    length = environ.get("CONTENT_LENGTH") or ""
    counted = length.isdecimal() and length.isascii()
    if counted and (len(length) > MOST_DIGITS or int(length) > limit):
        raise BodyTooLarge
    left = int(length) if counted else None
    body = Body(limit)
    if left is None and not environ.get("wsgi.input_terminated"):
        return body
    try:
        while left is None or left > 0:
            chunk = environ["wsgi.input"].read(PIECE if left is None else min(PIECE, left))
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


def _bytes(text: str) -> bytes:
    """As it came: WSGI shows bytes as latin-1."""
    return text.encode("latin-1", "backslashreplace")


def _path(environ: Environ) -> str:
    """As frameworks compare it: with one slash in front, of which Flask takes any number and none."""
    path: str = environ.get("PATH_INFO", "")
    if not path.isascii():
        path = _bytes(path).decode("utf-8", "replace")
    return f"/{path.lstrip('/')}"
