"""Endpoints under real servers and in frameworks, and killed in the middle of a request."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from onceward import Once, RecordState
from onceward.http.push import AsyncPubSubPush, PubSubPush, PushMessage
from tests.clients import TOO_LONG
from tests.endpoints.helpers import asgi_served, enveloped, wait_until, wsgi_served
from tests.servers.process import free_port

ROOT = Path(__file__).resolve().parents[2]
MANY = 40


@pytest.mark.mission("E1", "E3")
def test_concurrent_duplicates_under_uvicorn_run_once(tmp_path: Path) -> None:
    ran: list[str] = []
    with Once(f"sqlite:///{tmp_path / 'once.db'}") as once:
        endpoint = AsyncPubSubPush(once.aio, "orders", check=None)

        @endpoint.on({"order"})
        async def handle(message: PushMessage[Any]) -> None:
            ran.append(message.id)
            await asyncio.sleep(0.05)

        with asgi_served(endpoint) as url, httpx.Client() as http, ThreadPoolExecutor(MANY) as pool:
            posts = [pool.submit(http.post, url, content=enveloped({"order": 7})) for _ in range(MANY)]
            answers = [post.result(TOO_LONG) for post in posts]
            last = http.post(url, content=enveloped({"order": 7}))
    assert ran == ["m1"]
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 409)
    assert sum(answer.status_code == 200 and answer.json()["applied"] for answer in answers) == 1
    assert last.json() == {"applied": False, "reason": "duplicate_message_noop"}


def test_concurrent_duplicates_under_a_threaded_wsgi_server_run_once(tmp_path: Path) -> None:
    ran: list[str] = []
    with Once(f"sqlite:///{tmp_path / 'once.db'}") as once:
        endpoint = PubSubPush(once, "orders", check=None, on_running="wait")
        endpoint.on({"order"})(lambda message: ran.append(message.id))
        with wsgi_served(endpoint) as url, httpx.Client() as http, ThreadPoolExecutor(8) as pool:
            posts = [pool.submit(http.post, url, content=enveloped({"order": 7})) for _ in range(16)]
            answers = [post.result(TOO_LONG) for post in posts]
    assert ran == ["m1"]
    assert {answer.status_code for answer in answers} == {200}, "with waiting, every sender gets the result"
    assert sum(answer.json()["applied"] for answer in answers) == 1


def test_a_large_body_a_chunked_one_and_one_that_is_too_large() -> None:
    sizes: list[int] = []
    with Once("memory://") as once:
        asynchronous = AsyncPubSubPush(once.aio, "a", check=None, limit=3_000_000)

        @asynchronous.on()
        async def handle(message: PushMessage[Any]) -> None:
            sizes.append(len(message.data))

        blocking = PubSubPush(once, "b", check=None, limit=3_000_000)
        blocking.on()(lambda message: sizes.append(len(message.data)))
        large, too_large = enveloped({"x": "y" * 2_000_000}), enveloped({"x": "y" * 4_000_000})
        for serve, endpoint in ((asgi_served, asynchronous), (wsgi_served, blocking)):
            with serve(endpoint) as url, httpx.Client() as http:
                assert http.post(url, content=large).status_code == 200
                assert http.post(url, content=too_large).status_code == 413
                assert http.get(url).status_code == 405
        with asgi_served(asynchronous) as url, httpx.Client() as http:
            body = enveloped({"x": 1}, "chunked")
            assert http.post(url, content=iter([body[:10], body[10:]])).status_code == 200
    assert len(sizes) == 3


SERVER = """
import asyncio, sys
from pathlib import Path
import uvicorn
from onceward import AsyncOnce
from onceward.http.push import AsyncPubSubPush

once = AsyncOnce(f"sqlite:///{sys.argv[2]}/once.db")
push = AsyncPubSubPush(once, "orders", check=None, lease="1s")

@push.on({"order"})
async def handle(message):
    with Path(sys.argv[2], "begun").open("a") as log:
        log.write(f"{message.id}\\n")
    if sys.argv[3] == "hang":
        await asyncio.sleep(600)
    with Path(sys.argv[2], "done").open("a") as log:
        log.write(f"{message.id}\\n")

uvicorn.run(push, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", ws="none")
"""


@pytest.mark.fault("F30")
def test_a_server_killed_in_the_middle_of_a_request_leaves_the_message_to_the_next(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def start(mode: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SERVER, str(port), str(tmp_path), mode]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        server = subprocess.Popen(command, env=environment)
        wait_until(answers, "the server answers")
        return server

    def answers() -> bool:
        try:
            return http.get(url).status_code == 405
        except httpx.TransportError:
            return False

    def lines(name: str) -> int:
        file = tmp_path / name
        return len(file.read_text().splitlines()) if file.exists() else 0

    with httpx.Client(timeout=TOO_LONG) as http:
        server = start("hang")
        try:
            with ThreadPoolExecutor(1) as pool:
                lost = pool.submit(http.post, url, content=enveloped({"order": 7}))
                wait_until(lambda: lines("begun") == 1, "the handler was entered")
                server.send_signal(signal.SIGKILL)
                with pytest.raises(httpx.TransportError):
                    lost.result(TOO_LONG)
        finally:
            server.kill()
            server.wait(TOO_LONG)
        server = start("work")
        try:
            body = enveloped({"order": 7})
            wait_until(lambda: http.post(url, content=body).status_code == 200, "its lease has lapsed")
            assert http.post(url, content=body).json()["reason"] == "duplicate_message_noop"
        finally:
            server.kill()
            server.wait(TOO_LONG)
    assert (lines("begun"), lines("done")) == (2, 1)


@pytest.mark.fault("F76")
def test_a_sender_that_hangs_up_finds_the_work_done_when_it_comes_back(tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()
    ran: list[str] = []
    with Once(f"sqlite:///{tmp_path / 'once.db'}") as once:
        endpoint = AsyncPubSubPush(once.aio, "orders", check=None)

        @endpoint.on({"order"})
        async def handle(message: PushMessage[Any]) -> None:
            begun.set()
            await asyncio.to_thread(go.wait, TOO_LONG)
            ran.append(message.id)

        def state() -> Any:
            entry = once.read("m1", name="orders")
            return None if entry is None else entry.state

        with asgi_served(endpoint) as url:
            address = httpx.URL(url)
            body = enveloped({"order": 7})
            with socket.create_connection((address.host, address.port or 0)) as line:
                line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                assert begun.wait(TOO_LONG)
            go.set()
            wait_until(lambda: state() is RecordState.COMPLETED, "the work was finished and stored")
            assert httpx.post(url, content=body).json()["reason"] == "duplicate_message_noop"
    assert ran == ["m1"]


# ── in frameworks ──


def check_mounted(post: Callable[[bytes], Any]) -> None:
    first, second, bad = post(enveloped({"order": 7})), post(enveloped({"order": 7})), post(b"{}")
    assert [answer.status_code for answer in (first, second, bad)] == [200, 200, 400]
    assert first.headers["content-type"] == "application/json"
    assert bad.headers["content-type"] == "application/problem+json"


def async_orders(once: Once) -> AsyncPubSubPush:
    endpoint = AsyncPubSubPush(once.aio, "orders", check=None)

    @endpoint.on({"order"})
    async def handle(message: PushMessage[Any]) -> None:
        """Nothing."""

    return endpoint


def test_as_a_route_of_starlette() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Route

    with Once("memory://") as once:
        app = Starlette(routes=[Route("/pubsub/push", async_orders(once), methods=["POST"])])
        with asgi_served(app) as url, httpx.Client() as http:
            check_mounted(lambda body: http.post(f"{url}/pubsub/push", content=body))


def test_as_a_route_of_fastapi() -> None:
    from fastapi import FastAPI

    with Once("memory://") as once:
        app = FastAPI()
        app.add_route("/pubsub/push", async_orders(once), methods=["POST"])  # type: ignore[arg-type]  # it takes any ASGI application
        with asgi_served(app) as url, httpx.Client() as http:
            check_mounted(lambda body: http.post(f"{url}/pubsub/push", content=body))


def test_as_a_view_of_flask() -> None:
    from flask import Flask, request
    from werkzeug import Response

    with Once("memory://") as once:
        endpoint = PubSubPush(once, "orders", check=None)
        endpoint.on({"order"})(lambda message: None)
        app = Flask(__name__)

        @app.post("/pubsub/push")
        def push() -> Response:
            return Response.from_app(endpoint, request.environ)

        with wsgi_served(app) as url, httpx.Client() as http:
            check_mounted(lambda body: http.post(f"{url}/pubsub/push", content=body))


DJANGO = """
import sys
import django
from django.conf import settings
settings.configure(DEBUG=False, ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x")
django.setup()
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from onceward import Once, RecordState
from onceward.http.push import InboundRequest, PubSubPush

once = Once("memory://")
endpoint = PubSubPush(once, "orders", check=None)
endpoint.on({"order"})(lambda message: None)

@csrf_exempt
def push(request):
    answer = endpoint.respond(InboundRequest(request.method, request.headers, request.body))
    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))

urlpatterns = [path("pubsub/push", push)]
client = Client(enforce_csrf_checks=True)
for body in (sys.argv[1], sys.argv[1], "{}"):
    answer = client.post("/pubsub/push", data=body, content_type="application/json")
    print(answer.status_code, answer.headers["content-type"])
once.close()
"""


def test_as_a_view_of_django() -> None:
    """Run in a separate process, because Django's settings are global."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", DJANGO, enveloped({"order": 7}).decode()]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["200 application/json", "200 application/json", "400 application/problem+json"]
