"""Base classes of endpoints: a sync endpoint is a WSGI application, an async one an ASGI application.

Both share one flow from request to response. In a framework that gives you the request, call `respond`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, ClassVar, Final

from onceward.errors import OncewardError
from onceward.runtime.bridge import run

from .delivery_status import is_temporary, temporary_error_response
from .messages import InboundRequest, Response, problem

MAX_BODY_BYTES: Final = 10 * 1024 * 1024
"""Default limit of a body: the largest Pub/Sub message, and far more than any webhook."""

CHUNK_SIZE: Final = 64 * 1024

MAX_LENGTH_DIGITS: Final = 18
"""A Content-Length with more digits is rejected without parsing it."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TOO_LARGE: Final = "too_large"


class BaseEndpoint:
    """What sync and async endpoints share. A subclass implements `handle`, and may allow other `methods` than POST."""

    methods: ClassVar[tuple[str, ...]] = ("POST",)

    def __init__(self, limit: int = MAX_BODY_BYTES) -> None:
        self.limit = limit

    async def handle(self, request: InboundRequest) -> Response:
        """Return the response to a request with an allowed method and size."""
        raise NotImplementedError

    async def respond_to(self, request: InboundRequest) -> Response:
        """Check a request, and return the response to it."""
        if request.method not in self.methods:
            allowed = ", ".join(self.methods)
            return problem(405, "method_not_allowed", f"only {allowed} is allowed here", [("allow", allowed)])
        if len(request.body) > self.limit:
            return self.too_large()
        try:
            return await self.handle(request)
        except OncewardError as error:
            if not is_temporary(error):
                raise
            return temporary_error_response(error)

    def too_large(self) -> Response:
        return problem(413, TOO_LARGE, f"the body is larger than the limit of {self.limit} bytes")


class Endpoint(BaseEndpoint):
    """A sync endpoint: a WSGI application."""

    def respond(self, request: InboundRequest) -> Response:
        """Return the response to a request."""
        return run(self.respond_to(request))

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = self._read_body(environ)
        response = body if isinstance(body, Response) else self.respond(_wsgi_request(environ, body))
        start_response(f"{response.status} {response.reason}", [*response.headers, *_content_length(response)])
        return [response.body] if response.body else []

    def _read_body(self, environ: dict[str, Any]) -> bytes | Response:
        """Return the body, or the response that refuses it. Without a length, read only if the server marks the end."""
        length = environ.get("CONTENT_LENGTH") or ""
        if length and not (length.isascii() and length.isdigit()):
            return problem(400, "bad_length", "the content length is not a number")
        if not length and not environ.get("wsgi.input_terminated"):
            return b""
        digits = length.lstrip("0")  # leading zeros are allowed
        if len(digits) > MAX_LENGTH_DIGITS or int(digits or "0") > self.limit:
            return self.too_large()
        left = int(digits or "0") if length else self.limit + 1
        body = bytearray()
        while left and (chunk := environ["wsgi.input"].read(min(left, CHUNK_SIZE))):
            body += chunk
            left -= len(chunk)
        if length and left:
            return problem(400, "incomplete", "the body is shorter than its content length")
        return bytes(body)


class AsyncEndpoint(BaseEndpoint):
    """An async endpoint: an ASGI application."""

    async def respond(self, request: InboundRequest) -> Response:
        """Return the response to a request."""
        return await self.respond_to(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _serve_lifespan(receive, send)
            return
        if scope["type"] != "http":  # a websocket: refuse it before it is accepted
            await send({"type": "websocket.close", "code": 1000})
            return
        body = await self._read_body(receive)
        if body is None:
            return
        response = body if isinstance(body, Response) else await self.respond(_asgi_request(scope, body))
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
        headers += [(name.lower().encode(), value.encode()) for name, value in _content_length(response)]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def _read_body(self, receive: Receive) -> bytes | Response | None:
        """Return the body, or None if the client disconnected: nothing was started then."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self.limit:
                return self.too_large()
            if not message.get("more_body"):
                return bytes(body)


def _wsgi_request(environ: dict[str, Any], body: bytes) -> InboundRequest:
    headers = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    query = environ.get("QUERY_STRING", "")
    return InboundRequest(environ.get("REQUEST_METHOD", "GET"), headers, body, path=path or "/", query=query)


def _asgi_request(scope: Scope, body: bytes) -> InboundRequest:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    query = scope.get("query_string", b"").decode("latin-1")
    return InboundRequest(scope["method"], headers, body, path=scope.get("path") or "/", query=query)


def _content_length(response: Response) -> list[tuple[str, str]]:
    """Return the Content-Length header. A 204 has none."""
    return [] if response.status == HTTPStatus.NO_CONTENT else [("Content-Length", str(len(response.body)))]


async def _serve_lifespan(receive: Receive, send: Send) -> None:
    """Acknowledge startup and shutdown, when the endpoint is the only application of a server."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
