"""Helpers of the endpoint tests: requests as senders make them, sync and async endpoints, and real servers."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn

from onceward.http.messages import InboundRequest, Response
from onceward.http.push import AsyncCloudEventsPush, AsyncPubSubPush, CloudEventsPush, PubSubPush
from onceward.http.webhooks import AsyncWebhook, Webhook
from tests.clients import TOO_LONG, SyncClient

PATIENCE = 0.01


class BlockingEndpoint:
    """A sync or async endpoint, called as blocking code."""

    def __init__(self, client: SyncClient, endpoint: Any) -> None:
        self.client = client
        self.endpoint = endpoint

    def on(self, *args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
            self.endpoint.on(*args, **kwargs)(self.client.work(fn))
            return fn

        return decorate

    def send(self, request: InboundRequest) -> Response:
        answer: Response = self.client.wait(self.endpoint.respond(request))
        return answer

    def post(self, request: InboundRequest) -> tuple[int, Any]:
        """Return the status and the content of the body."""
        answer = self.send(request)
        return answer.status, json.loads(answer.body) if answer.body else None


def pubsub_of(client: SyncClient, name: str = "orders", *, check: Any = None, **choices: Any) -> BlockingEndpoint:
    kind = PubSubPush if client.mode == "blocking" else AsyncPubSubPush
    return BlockingEndpoint(client, kind(client.once, name, check=check, **choices))


def cloudevents_of(client: SyncClient, name: str = "orders", *, check: Any = None, **choices: Any) -> BlockingEndpoint:
    kind = CloudEventsPush if client.mode == "blocking" else AsyncCloudEventsPush
    return BlockingEndpoint(client, kind(client.once, name, check=check, **choices))


def webhook_of(client: SyncClient, scheme: Any, handler: Callable[..., Any], **details: Any) -> BlockingEndpoint:
    kind = Webhook if client.mode == "blocking" else AsyncWebhook
    return BlockingEndpoint(client, kind(client.once, scheme, client.work(handler), **details))


def push(payload: Any, id: str = "m1", *, headers: dict[str, str] | None = None, **message: Any) -> InboundRequest:
    """Return a Pub/Sub push with this payload; bytes are sent as they are."""
    return InboundRequest("POST", headers or {"content-type": "application/json"}, enveloped(payload, id, **message))


def enveloped(payload: Any, id: str = "m1", **message: Any) -> bytes:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    inner = {"messageId": id, "data": base64.b64encode(data).decode(), "publishTime": "2026-03-01T08:00:00Z", **message}
    envelope = {"message": inner, "subscription": "projects/p/subscriptions/s"}
    return json.dumps(envelope).encode()


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until the condition is true, and return its value."""
    deadline = time.monotonic() + TOO_LONG
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(PATIENCE)
    return found


@contextmanager
def asgi_served(app: Any) -> Iterator[str]:
    """Serve this application with a real uvicorn and return its address."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", ws="none", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="uvicorn", daemon=True)
    thread.start()
    wait_until(lambda: server.started, "uvicorn has started")
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(TOO_LONG)


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (named so there)
        """Nothing."""


@contextmanager
def wsgi_served(app: Any) -> Iterator[str]:
    """Serve this application with the standard library's server, one thread per request, and return its address."""
    server = make_server("127.0.0.1", 0, app, _Threads, _Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(PATIENCE,), name="wsgiref", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(TOO_LONG)
