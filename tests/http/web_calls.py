"""Call ASGI and WSGI applications of real frameworks as blocking code, without a server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx


class WebClient:
    """A client of one application. Exceptions of the application are responses with status 500, as with a server."""

    def __init__(self, app: Any, *, is_asgi: bool = True, **headers: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._headers = headers
        self._asgi: httpx.AsyncClient | None = None
        self._wsgi: httpx.Client | None = None
        if is_asgi:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            self._asgi = httpx.AsyncClient(transport=transport, base_url="http://bank")
        else:
            self._wsgi = httpx.Client(
                transport=httpx.WSGITransport(app, raise_app_exceptions=False), base_url="http://bank"
            )

    def post(self, path: str, content: Any = None, key: str | None = "k1", **more: Any) -> httpx.Response:
        headers = {"Content-Type": "application/json", **self._headers, **more.pop("headers", {})}
        if key is not None:
            headers["Idempotency-Key"] = f'"{key}"'
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.send("POST", path, content=body, headers=headers)

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        if self._wsgi is not None:
            return self._wsgi.request(method, path, **request)
        assert self._asgi is not None
        return self._loop.run_until_complete(self._asgi.request(method, path, **request))

    def wait(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        if self._wsgi is not None:
            self._wsgi.close()
        if self._asgi is not None:
            self._loop.run_until_complete(self._asgi.aclose())
        self._loop.close()


def same_response(first: httpx.Response, second: httpx.Response) -> bool:
    """Return whether status, headers and body are equal, byte for byte; a replay has one header more."""
    headers = [pair for pair in second.headers.raw if pair[0].lower() != b"idempotency-replayed"]
    return (first.status_code, sorted(first.headers.raw), first.content) == (
        second.status_code,
        sorted(headers),
        second.content,
    )
