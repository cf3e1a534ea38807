"""A small sync or async web site behind the middleware, called as plain blocking code without a server.

`site.handler(asked)` is the application: it gets an `Asked` and returns (status, headers, body), or raises.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
import json
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from onceward import AsyncOnce, Entry, Once
from onceward.http import asgi, wsgi
from onceward.stores import MemoryStore

Headers = list[tuple[bytes, bytes]]
JSON = (b"content-type", b"application/json")


class Asked(NamedTuple):
    """The request as the application sees it."""

    method: str
    path: str
    query: bytes
    body: bytes


class Reply(NamedTuple):
    """The response as the client sees it."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        found = self.all(name)
        return found[0] if found else None

    def all(self, name: str) -> list[str]:
        return [value.decode() for one, value in self.headers if one.lower() == name.encode()]

    @property
    def replayed(self) -> bool:
        return self.header("idempotency-replayed") == "true"

    @property
    def problem(self) -> dict[str, Any]:
        assert self.header("content-type") == "application/problem+json", self
        problem: dict[str, Any] = json.loads(self.body)
        assert problem["status"] == self.status
        return problem


Answer = tuple[int, Headers, bytes | list[bytes]]


def created(asked: Asked) -> Answer:
    return 201, [JSON], b'{"id": 1}'


class Site:
    """What the sync and the async site share."""

    def __init__(self, handler: Callable[[Asked], Answer] = created, **choices: Any) -> None:
        self.handler = handler
        self.runs: list[Asked] = []
        self.events: list[str] = []
        chosen = {
            "principal": self.user_of,
            "required": ["/pay", "/orders/{id}/pay"],
            "optional": ["/notes/*"],
            **choices,
        }
        self.once: Any = self._client(chosen.pop("store", None) or MemoryStore(), **chosen.pop("client", {}))
        self.once.subscribe(lambda event: self.events.append(event.name))
        self.app: Any = self._wrap(chosen)

    def answer(self, asked: Asked) -> Answer:
        self.runs.append(asked)
        return self.handler(asked)

    def ask(
        self,
        key: str | None = '"k1"',
        body: bytes | list[bytes] = b'{"cents": 5}',
        *,
        method: str = "POST",
        path: str = "/pay",
        query: bytes = b"",
        user: str | None = "alice",
        headers: Iterable[tuple[bytes, bytes]] = (JSON,),
    ) -> Reply:
        sent = list(headers)
        if user is not None:
            sent.append((b"authorization", user.encode()))
        if key is not None:
            sent.append((b"idempotency-key", key.encode("latin-1")))
        return self.request(method, path, query, sent, [body] if isinstance(body, bytes) else body)

    def meanwhile(self, **request: Any) -> Future[Reply]:
        """Send the request in another thread."""
        future: Future[Reply] = Future()

        def run() -> None:
            try:
                future.set_result(contextvars.Context().run(lambda: self.ask(**request)))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def read(self, key: str, *, tenant: str) -> Entry | None:
        entry: Entry | None = self.wait(self.once.using(tenant=tenant).read(key, name="http"))
        return entry

    def wait(self, call: Any) -> Any:
        return call

    def user_of(self, request: Any) -> str | None:
        raise NotImplementedError

    def _client(self, store: Any, **defaults: Any) -> Any:
        raise NotImplementedError

    def _wrap(self, choices: dict[str, Any]) -> Any:
        raise NotImplementedError

    def request(self, method: str, path: str, query: bytes, headers: Headers, chunks: list[bytes]) -> Reply:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class WsgiSite(Site):
    """A WSGI site on `Once`."""

    def user_of(self, request: Any) -> str | None:
        user: str | None = request.get("HTTP_AUTHORIZATION")
        return user

    def _client(self, store: Any, **defaults: Any) -> Once:
        return Once(store, **defaults)

    def _wrap(self, choices: dict[str, Any]) -> Any:
        return wsgi.IdempotencyMiddleware(self._application, self.once, **choices)

    def _application(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read()
        asked = Asked(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"].encode(), body)
        status, headers, answer = self.answer(asked)
        shown = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        start_response(f"{status} Reason", shown)
        return [answer] if isinstance(answer, bytes) else iter(answer)

    def request(self, method: str, path: str, query: bytes, headers: Headers, chunks: list[bytes]) -> Reply:
        body = b"".join(chunks)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": path,
            "QUERY_STRING": query.decode("latin-1"),
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }
        for name, value in headers:
            shown = name.decode("latin-1").upper().replace("-", "_")
            shown = shown if shown in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{shown}"
            text = value.decode("latin-1")
            environ[shown] = f"{environ[shown]},{text}" if shown in environ and shown.startswith("HTTP_") else text
        head: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            head[:] = [int(status[:3]), [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]]
            return lambda data: None

        answer = self.app(environ, start_response)
        try:
            body = b"".join(answer)
        finally:
            close = getattr(answer, "close", None)
            if close is not None:
                close()
        return Reply(head[0], head[1], body)

    def close(self) -> None:
        self.once.close()


class AsgiSite(Site):
    """An ASGI site on `AsyncOnce`, on an event loop in another thread. Handlers run in worker threads and may block."""

    def __init__(self, handler: Callable[[Asked], Answer] = created, **choices: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        super().__init__(handler, **choices)

    def user_of(self, request: Any) -> str | None:
        return next((value.decode() for name, value in request["headers"] if name == b"authorization"), None)

    def _client(self, store: Any, **defaults: Any) -> AsyncOnce:
        return AsyncOnce(store, **defaults)

    def _wrap(self, choices: dict[str, Any]) -> Any:
        return asgi.IdempotencyMiddleware(self.application, self.once, **choices)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        chunks, more = [], True
        while more:
            message = await receive()
            assert message["type"] == "http.request"
            chunks.append(message["body"])
            more = message.get("more_body", False)
        asked = Asked(scope["method"], scope["path"], scope["query_string"], b"".join(chunks))
        status, headers, answer = await asyncio.to_thread(self.answer, asked)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if isinstance(answer, bytes):
            await send({"type": "http.response.body", "body": answer})
            return
        for part in answer:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def request(self, method: str, path: str, query: bytes, headers: Headers, chunks: list[bytes]) -> Reply:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode("utf-8", "surrogatepass"),
            "query_string": query,
            "headers": headers,
        }
        messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        messages[-1]["more_body"] = False
        reply: Reply = self.wait(reply_to(self.app, scope, messages))
        return reply

    def wait(self, call: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(60)

    def close(self) -> None:
        self.wait(self.once.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


async def reply_to(app: Any, scope: dict[str, Any], messages: list[Any]) -> Reply:
    """Send one request to an ASGI application; the client stays until it has the whole answer."""
    waiting = iter(messages)
    done = asyncio.Event()
    head: list[Any] = []
    parts: list[bytes] = []

    async def receive() -> Any:
        message = next(waiting, None)
        if message is None:
            await done.wait()
            return {"type": "http.disconnect"}
        return message

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            head[:] = [message["status"], [(bytes(name), bytes(value)) for name, value in message["headers"]]]
        elif message["type"] == "http.response.body":
            assert not done.is_set(), "nothing is sent after the end of an answer"
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                done.set()

    await app(scope, receive, send)
    assert done.is_set(), "the answer is incomplete"
    return Reply(head[0], head[1], b"".join(parts))


SITES: dict[str, type[Site]] = {"asgi": AsgiSite, "wsgi": WsgiSite}
