"""Endpoints as servers mount them: a blocking one is a WSGI application, an async one an ASGI application.

Both take a request to an answer by the same flow. In a framework that hands you the request, call `respond`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, ClassVar, Final

from onceward.errors import OncewardError
from onceward.runtime.bridge import run

from .delivery_status import is_trouble, trouble
from .messages import InboundRequest, Response, problem

LIMIT: Final = 10 * 1024 * 1024
"""Bytes of a body: as much as a Pub/Sub message may have, and far more than any webhook."""

CHUNK: Final = 64 * 1024

MOST_DIGITS: Final = 18
"""Of a length that is worth reading as a number."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TOO_LARGE: Final = "too_large"


class Answering:
    """What both colours share. A subclass says what the answer is, to a POST unless it names other `methods`."""

    methods: ClassVar[tuple[str, ...]] = ("POST",)

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit

    async def answer(self, request: InboundRequest) -> Response:
        """The flow of a request of such a method that is not too large."""
        raise NotImplementedError

    async def answered(self, request: InboundRequest) -> Response:
        """The answer to any request."""
        if request.method not in self.methods:
            allowed = ", ".join(self.methods)
            return problem(405, "method_not_allowed", f"only {allowed} is answered here", [("allow", allowed)])
        if len(request.body) > self.limit:
            return self.too_large()
        try:
            return await self.answer(request)
        except OncewardError as error:
            if not is_trouble(error):
                raise
            return trouble(error)

    def too_large(self) -> Response:
        return problem(413, TOO_LARGE, f"a body may have {self.limit} bytes")


class Endpoint(Answering):
    """The blocking colour: call it as a WSGI application."""

    def respond(self, request: InboundRequest) -> Response:
        """The answer to a request."""
        return run(self.answered(request))

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = self._body(environ)
        answer = body if isinstance(body, Response) else self.respond(_request_in(environ, body))
        start_response(f"{answer.status} {answer.reason}", [*answer.headers, *_length(answer)])
        return [answer.body] if answer.body else []

    def _body(self, environ: dict[str, Any]) -> bytes | Response:
        """All of it, or the answer to whoever sends too much. Without a length only what the server itself ends."""
        length = environ.get("CONTENT_LENGTH") or ""
        if length and not (length.isascii() and length.isdigit()):
            return problem(400, "bad_length", "the content length is no number")
        if not length and not environ.get("wsgi.input_terminated"):
            return b""
        digits = length.lstrip("0")  # any number of them may come first
        if len(digits) > MOST_DIGITS or int(digits or "0") > self.limit:
            return self.too_large()
        left = int(digits or "0") if length else self.limit + 1
        body = bytearray()
        while left and (chunk := environ["wsgi.input"].read(min(left, CHUNK))):
            body += chunk
            left -= len(chunk)
        if length and left:
            return problem(400, "incomplete", "the body is shorter than its length says")
        return bytes(body)


class AsyncEndpoint(Answering):
    """The async colour: call it as an ASGI application."""

    async def respond(self, request: InboundRequest) -> Response:
        """The answer to a request."""
        return await self.answered(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":  # a websocket: refused before it is accepted
            await send({"type": "websocket.close", "code": 1000})
            return
        body = await self._body(receive)
        if body is None:
            return
        answer = body if isinstance(body, Response) else await self.respond(_request_of(scope, body))
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        headers += [(name.lower().encode(), value.encode()) for name, value in _length(answer)]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _body(self, receive: Receive) -> bytes | Response | None:
        """All of it; None if the client has gone, for then nothing was begun."""
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


def _request_in(environ: dict[str, Any], body: bytes) -> InboundRequest:
    headers = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    query = environ.get("QUERY_STRING", "")
    return InboundRequest(environ.get("REQUEST_METHOD", "GET"), headers, body, path=path or "/", query=query)


def _request_of(scope: Scope, body: bytes) -> InboundRequest:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    query = scope.get("query_string", b"").decode("latin-1")
    return InboundRequest(scope["method"], headers, body, path=scope.get("path") or "/", query=query)


def _length(answer: Response) -> list[tuple[str, str]]:
    """A 204 has no body, and so no length."""
    return [] if answer.status == HTTPStatus.NO_CONTENT else [("Content-Length", str(len(answer.body)))]


async def _live(receive: Receive, send: Send) -> None:
    """As the only application of a server: nothing to start, nothing to stop."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
