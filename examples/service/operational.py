"""Routes for operators, in front of an application: `/healthz`, `/readyz` and `/metrics`.

`/healthz` succeeds while the process lives. `/readyz` succeeds if the service can work: its store answers, and it is
not stopping. A load balancer sends requests only to ready processes. `/metrics` is for Prometheus; if a token is
configured, it is required.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
IsReady = Callable[[], Awaitable[None]]
"""Raises if the service cannot work."""

READY_TIMEOUT = 5.0
logger = logging.getLogger("service")


class Operational:
    """An ASGI application with the routes above, in front of another one."""

    def __init__(self, app: App, is_ready: IsReady, metrics: App | None, metrics_token: str | None) -> None:
        self._app = app
        self._is_ready = is_ready
        self._metrics = metrics
        self._metrics_token = metrics_token
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        path = scope.get("path") if scope["type"] == "http" else None
        if path == "/healthz":
            await _respond(send, 200, b"alive\n")
        elif path == "/readyz":
            await self._respond_ready(send)
        elif path == "/metrics" and self._metrics is not None:
            if self._may_read_metrics(scope):
                await self._metrics({**scope, "path": "/"}, receive, send)
            else:
                await _respond(send, 401, b"send the metrics token as Authorization: Bearer ...\n")
        else:
            await self._app(scope, receive, send)

    async def _respond_ready(self, send: Any) -> None:
        if self.stopping:
            await _respond(send, 503, b"stopping\n")
            return
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                await self._is_ready()
        except Exception as error:  # noqa: BLE001 (any error means: not ready)
            logger.warning("not ready: %s: %s", type(error).__name__, error)
            await _respond(send, 503, b"not ready, see the log\n")
        else:
            await _respond(send, 200, b"ready\n")

    def _may_read_metrics(self, scope: Scope) -> bool:
        if self._metrics_token is None:
            return True
        sent = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(sent, b"Bearer " + self._metrics_token.encode())


async def _respond(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
