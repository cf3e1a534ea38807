"""Base classes of endpoints: a sync endpoint is a WSGI application, an async one an ASGI application.

Both share one flow from request to response: check method, sender and size before the body is read, read the body,
handle the request. If your framework passes you the request, call `respond`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, ClassVar, Final

from onceward.errors import ConfigurationError, OncewardError
from onceward.protocol.duration import Duration, format_duration, microseconds
from onceward.protocol.policy import SECOND
from onceward.runtime.threads import run

from .delivery_status import is_temporary, temporary_error_response
from .messages import InboundRequest, Response, problem, retry_after_header
from .semantics import MAX_LENGTH_DIGITS

MAX_BODY_BYTES: Final = 10 * 1024 * 1024
"""Default limit of a body: the largest Pub/Sub message, and far more than any webhook."""

MAX_BUFFERED: Final = 64 * 1024 * 1024
"""Default limit of all bodies together, in bytes."""

UNCOUNTED: Final = 64 * 1024
"""Bytes of each body that are not counted, so that large bodies cannot block small ones."""

CHUNK_SIZE: Final = 64 * 1024

BODY_TIMEOUT: Final = "60s"
"""Default for how long a client may take to send a body. A body counts towards `max_buffered` while it arrives."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TOO_LARGE: Final = "too_large"

RETRY_AFTER: Final = 1
"""Seconds after which a request that did not fit into memory should be sent again."""


class BufferBudget:
    """The limit of bytes that all bodies may use together, not counting the first 64 KiB of each. Thread-safe."""

    def __init__(self, limit: int | None, largest: int) -> None:
        """`largest` is the limit of a single body. A body of this size must fit."""
        if limit is not None and limit < largest:
            raise ConfigurationError(
                f"max_buffered={limit} is less than limit={largest}: a body of the allowed size would never fit",
                hint="raise max_buffered, or lower limit",
            )
        self._limit = max(MAX_BUFFERED, largest) if limit is None else limit
        self._used = 0
        self._lock = threading.Lock()

    @contextmanager
    def hold(self) -> Iterator[HeldBytes]:
        """Count the body of one request until the block ends."""
        held = HeldBytes(self)
        try:
            yield held
        finally:
            self.take(-held.counted)

    def take(self, size: int) -> bool:
        """Count `size` more bytes and return True. If they do not fit, count nothing and return False."""
        with self._lock:
            if size > 0 and self._used + size > self._limit:
                return False
            self._used += size
            return True


class HeldBytes:
    """The bytes of one body."""

    __slots__ = ("_budget", "_size", "counted")

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self._size = 0
        self.counted = 0

    def add(self, size: int) -> bool:
        """Count `size` more bytes of the body. Return False if they do not fit."""
        self._size += size
        more = max(0, self._size - UNCOUNTED) - self.counted
        if not self._budget.take(more):
            return False
        self.counted += more
        return True


class BaseEndpoint:
    """What sync and async endpoints share. A subclass implements `handle`, and may allow other `methods` than POST.

    `limit` is the largest body in bytes. `max_buffered` is how many bytes the bodies of all requests may use in total
    (default: 64 MiB), without the first 64 KiB of each. Beyond that, requests get 503 and `Retry-After`. `body_timeout`
    is how long a client may take to send its body to an async endpoint. After that, the request gets 408.
    """

    methods: ClassVar[tuple[str, ...]] = ("POST",)

    def __init__(
        self, limit: int = MAX_BODY_BYTES, max_buffered: int | None = None, body_timeout: Duration = BODY_TIMEOUT
    ) -> None:
        self.limit = limit
        self.body_timeout = microseconds(body_timeout, "body_timeout")
        if not self.body_timeout:
            raise ConfigurationError("body_timeout=0 would refuse every body", hint='pass a duration such as "60s"')
        self._budget = BufferBudget(max_buffered, limit)

    async def check_head(self, request: InboundRequest) -> Response | None:  # noqa: ARG002 (subclasses use it)
        """Return the refusal of a request, or None. The request has no body yet: it is read only if this allows it."""
        return None

    async def handle(self, request: InboundRequest) -> Response:
        """Return the response to a request that `check_head` allowed, with an allowed method and size."""
        raise NotImplementedError

    async def respond_to(self, request: InboundRequest) -> Response:
        """Check a request, and return the response to it."""
        refusal = await self.refuse_head(request.without_body(), len(request.body))
        return await self.respond_to_checked(request) if refusal is None else refusal

    async def refuse_head(self, request: InboundRequest, length: int) -> Response | None:
        """Return the refusal of a request, or None, from its headers and the announced length of its body."""
        if request.method not in self.methods:
            allowed = ", ".join(self.methods)
            return problem(405, "method_not_allowed", f"only {allowed} is allowed here", [("allow", allowed)])
        refusal = await self.check_head(request)
        if refusal is None and length > self.limit:
            return self.too_large()
        return refusal

    async def respond_to_checked(self, request: InboundRequest) -> Response:
        """Return the response to a request that was not refused."""
        try:
            return await self.handle(request)
        except OncewardError as error:
            if not is_temporary(error):
                raise
            return temporary_error_response(error)

    def too_large(self) -> Response:
        return problem(413, TOO_LARGE, f"the body is larger than the limit of {self.limit} bytes")

    def busy(self) -> Response:
        return problem(
            503, "busy", "too many large requests at the same time; send it again", [retry_after_header(RETRY_AFTER)]
        )


class Endpoint(BaseEndpoint):
    """A sync endpoint: a WSGI application."""

    def respond(self, request: InboundRequest) -> Response:
        """Return the response to a `request`, for frameworks that are neither WSGI nor ASGI."""
        return run(self.respond_to(request))

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request as a WSGI application: call `start_response(…)`, and return the body.

        `environ` is the request, as WSGI defines it.
        """
        response = self._wsgi_response(environ)
        start_response(f"{response.status} {response.reason}", [*response.headers, *_content_length(response)])
        return [response.body] if response.body else []

    def _wsgi_response(self, environ: dict[str, Any]) -> Response:
        length = environ.get("CONTENT_LENGTH") or ""
        if length and not (length.isascii() and length.isdigit()):
            return problem(400, "bad_length", "the content length is not a number")
        digits = length.lstrip("0")[:MAX_LENGTH_DIGITS]  # leading zeros are allowed
        size = int(digits or "0") if length else None
        refusal = run(self.refuse_head(_wsgi_request(environ, b""), size or 0))
        if refusal is not None:
            return refusal
        with self._budget.hold() as held:
            body = self._read_body(environ, size, held)
            return body if isinstance(body, Response) else run(self.respond_to_checked(_wsgi_request(environ, body)))

    def _read_body(self, environ: dict[str, Any], length: int | None, held: HeldBytes) -> bytes | Response:
        """Return the body, or the response that refuses it. Without a length, read only if the server marks the end."""
        if length is None and not environ.get("wsgi.input_terminated"):
            return b""
        left = self.limit + 1 if length is None else length
        body = bytearray()
        while left and (chunk := environ["wsgi.input"].read(min(left, CHUNK_SIZE))):
            if not held.add(len(chunk)):
                return self.busy()
            body += chunk
            left -= len(chunk)
        if len(body) > self.limit:
            return self.too_large()
        if length is not None and left:
            return problem(400, "incomplete", "the body is shorter than its content length")
        return bytes(body)


class AsyncEndpoint(BaseEndpoint):
    """An async endpoint: an ASGI application."""

    async def respond(self, request: InboundRequest) -> Response:
        """Return the response to a `request`, for frameworks that are neither WSGI nor ASGI."""
        return await self.respond_to(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request as an ASGI application, with `scope`, `receive` and `send` as ASGI defines them."""
        if scope["type"] == "lifespan":
            await _serve_lifespan(receive, send)
            return
        if scope["type"] != "http":  # a websocket: refuse it before it is accepted
            await send({"type": "websocket.close", "code": 1000})
            return
        response = await self._asgi_response(scope, receive)
        if response is None:
            return
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
        headers += [(name.lower().encode(), value.encode()) for name, value in _content_length(response)]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def _asgi_response(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response, or None if the client disconnected."""
        head = _asgi_request(scope, b"")
        length = head.header("content-length")[: MAX_LENGTH_DIGITS + 1]
        refusal = await self.refuse_head(head, int(length) if length.isascii() and length.isdigit() else 0)
        if refusal is not None:
            return refusal
        with self._budget.hold() as held:
            body = await self._read_body_in_time(scope, receive, held)
            if body is None or isinstance(body, Response):
                return body
            return await self.respond_to_checked(_asgi_request(scope, body))

    async def _read_body_in_time(self, scope: Scope, receive: Receive, held: HeldBytes) -> bytes | Response | None:
        import asyncio  # imported here: sync endpoints do not need it

        try:
            async with asyncio.timeout(self.body_timeout / SECOND):
                return await self._read_body(receive, held)
        except TimeoutError:
            limit = format_duration(self.body_timeout)
            detail = f"the body did not arrive within {limit}; send it again"
            # The rest of the body is not read, so the connection cannot be used again. HTTP/2 forbids this header.
            closes = scope.get("http_version", "1.1") in ("1.0", "1.1")
            headers = [("connection", "close")] if closes else []
            return problem(408, "body_timeout", detail, headers)

    async def _read_body(self, receive: Receive, held: HeldBytes) -> bytes | Response | None:
        """Return the body, or None if the client disconnected: nothing was started then."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            if len(body) + len(chunk) > self.limit:
                return self.too_large()
            if not held.add(len(chunk)):
                return self.busy()
            body += chunk
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
