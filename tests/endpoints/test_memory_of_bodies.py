"""A sender is authenticated before its body is read, and all bodies together take a bounded amount of memory."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import Once
from onceward.errors import ConfigurationError
from onceward.http.endpoint import UNCOUNTED
from onceward.http.push import AsyncPubSubPush, PubSubPush, bearer_token
from onceward.http.webhooks import AsyncWebhook, Webhook, stripe
from tests.endpoints.helpers import enveloped

MIB = 1024 * 1024


@pytest.fixture
def once() -> Iterator[Once]:
    with Once("memory://") as once:
        yield once


class Unread:
    """A body that must not be read."""

    def read(self, size: int = -1) -> bytes:
        raise AssertionError("the body was read")


def wsgi_status(app: Any, stream: Any, length: int, **headers: str) -> str:
    answers: list[str] = []
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "CONTENT_LENGTH": str(length), "wsgi.input": stream}
    list(app({**environ, **headers}, lambda status, headers: answers.append(status)))
    return answers[0][:3]


async def asgi_status(app: Any, receive: Any, *headers: tuple[bytes, bytes]) -> int:
    statuses: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app({"type": "http", "method": "POST", "path": "/", "headers": list(headers)}, receive, send)
    return statuses[0]


async def unread() -> Any:
    raise AssertionError("the body was read")


@pytest.mark.finding("N35")
def test_a_sender_without_a_valid_token_is_refused_before_its_body_is_read(once: Once) -> None:
    push = PubSubPush(once, "orders", check=bearer_token("right"))
    assert wsgi_status(push, Unread(), 5 * MIB, HTTP_AUTHORIZATION="Bearer wrong") == "401"
    assert wsgi_status(push, Unread(), 5 * MIB) == "401"
    hook = Webhook(once, stripe("secret"), print)
    assert wsgi_status(hook, Unread(), 5 * MIB) == "403"
    assert wsgi_status(hook, Unread(), 5 * MIB, HTTP_STRIPE_SIGNATURE="t=1,v1=00") == "403"


@pytest.mark.finding("N35")
async def test_a_sender_without_a_valid_token_is_refused_before_its_body_is_read_async() -> None:
    once = Once("memory://")

    async def handle(event: Any) -> None:
        raise AssertionError(event)

    push = AsyncPubSubPush(once.aio, "orders", check=bearer_token("right"))
    assert await asgi_status(push, unread, (b"authorization", b"Bearer wrong")) == 401
    assert await asgi_status(AsyncWebhook(once.aio, stripe("secret"), handle), unread) == 403
    right = (b"authorization", b"Bearer right")
    assert await asgi_status(push, unread, right, (b"content-length", b"9" * 30)) == 413
    await asyncio.to_thread(once.close)


@pytest.mark.finding("N35")
async def test_bodies_that_do_not_fit_into_memory_together_get_a_503_and_small_ones_pass() -> None:
    once = Once("memory://")
    push = AsyncPubSubPush(once.aio, "orders", check=None, limit=4 * MIB, max_buffered=6 * MIB)
    push.on()(_accept)
    hold = asyncio.Event()
    arrived = asyncio.Semaphore(0)

    def slow_body() -> Any:
        parts = iter([{"type": "http.request", "body": bytes(3 * MIB), "more_body": True}])

        async def receive() -> Any:
            for part in parts:
                return part
            arrived.release()
            await hold.wait()
            return {"type": "http.disconnect"}

        return receive

    async def small() -> Any:
        return {"type": "http.request", "body": enveloped({"n": 1}), "more_body": False}

    async def full() -> Any:
        return {"type": "http.request", "body": bytes(4 * MIB), "more_body": False}

    # two of them fill the memory, except for the first bytes of each
    slow = [asyncio.create_task(push(_scope(), slow_body(), _ignore)) for _ in range(2)]
    for _ in slow:
        await arrived.acquire()
    assert await asgi_status(push, slow_body()) == 503
    assert await asgi_status(push, small) == 200
    hold.set()
    await asyncio.gather(*slow)
    assert await asgi_status(push, full) == 400, "the memory is free again, and the body is no envelope"
    await asyncio.to_thread(once.close)


@pytest.mark.finding("N35")
async def test_a_body_that_stalls_gets_a_408_and_frees_its_memory() -> None:
    once = Once("memory://")
    push = AsyncPubSubPush(once.aio, "orders", check=None, limit=MIB, max_buffered=MIB, body_timeout="50ms")
    parts = iter([{"type": "http.request", "body": bytes(MIB), "more_body": True}])

    async def stalling() -> Any:
        for part in parts:
            return part
        return await asyncio.Future()  # never done

    async def full() -> Any:
        return {"type": "http.request", "body": bytes(MIB), "more_body": False}

    assert await asgi_status(push, stalling) == 408
    assert await asgi_status(push, full) == 400, "the memory is free again, and the body is no envelope"
    await asyncio.to_thread(once.close)


@pytest.mark.finding("N35")
@pytest.mark.parametrize("version", ["1.0", "1.1", "2", "3"])
async def test_after_a_408_nothing_runs_and_the_connection_is_closed(version: str) -> None:
    once = Once("memory://")
    ran: list[Any] = []

    async def handle(event: Any) -> None:
        ran.append(event)

    push = AsyncPubSubPush(once.aio, "orders", check=None, body_timeout="50ms")
    push.on()(handle)
    body = enveloped({"n": 1})
    rest: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    parts = iter([{"type": "http.request", "body": body[:10], "more_body": True}])
    received: list[str] = []

    async def late() -> Any:
        for part in parts:
            return part
        received.append("waiting")
        return await rest

    async def whole() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await push({**_scope(), "http_version": version}, late, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 408
    assert ((b"connection", b"close") in sent[0]["headers"]) is version.startswith("1")
    assert b"did not arrive within 50ms" in sent[1]["body"]
    if not rest.done():
        rest.set_result({"type": "http.request", "body": body[10:], "more_body": False})
    for _ in range(20):
        await asyncio.sleep(0)
    assert (ran, len(sent), received) == ([], 2, ["waiting"])
    assert await once.store.counts(timeout=5) == {}, "nothing was claimed"
    assert await asgi_status(push, whole) == 200
    assert len(ran) == 1, "the sender may send it again"
    await asyncio.to_thread(once.close)


@pytest.mark.finding("N35")
async def test_a_body_that_arrives_within_the_timeout_is_accepted() -> None:
    once = Once("memory://")
    push = AsyncPubSubPush(once.aio, "orders", check=None, body_timeout="60s")
    push.on()(_accept)

    async def slow() -> Any:
        await asyncio.sleep(0.3)
        return {"type": "http.request", "body": enveloped({"n": 1}), "more_body": False}

    assert await asgi_status(push, slow) == 200
    await asyncio.to_thread(once.close)


@pytest.mark.parametrize("timeout", ["0s", "-1s", "soon"])
def test_a_timeout_for_bodies_is_a_positive_duration(once: Once, timeout: str) -> None:
    with pytest.raises(ConfigurationError, match="body_timeout"):
        PubSubPush(once, "orders", check=None, body_timeout=timeout)


@pytest.mark.finding("N35")
def test_bodies_that_do_not_fit_into_memory_together_get_a_503_wsgi(once: Once) -> None:
    push = PubSubPush(once, "orders", check=None, limit=2 * MIB, max_buffered=2 * MIB)
    reading, release = threading.Event(), threading.Event()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= MIB + UNCOUNTED and not reading.is_set():
                reading.set()
                assert release.wait(60)
            return super().read(size)

    statuses: list[str] = []
    body = Slow(bytes(2 * MIB))
    thread = threading.Thread(target=lambda: statuses.append(wsgi_status(push, body, 2 * MIB)))
    thread.start()
    assert reading.wait(60)
    assert wsgi_status(push, io.BytesIO(bytes(2 * MIB)), 2 * MIB) == "503"
    assert wsgi_status(push, io.BytesIO(bytes(UNCOUNTED)), UNCOUNTED) == "400"
    release.set()
    thread.join(60)
    assert statuses == ["400"]
    assert wsgi_status(push, io.BytesIO(bytes(2 * MIB)), 2 * MIB) == "400", "the memory is free again"


def test_less_memory_than_one_body_may_take_is_refused(once: Once) -> None:
    with pytest.raises(ConfigurationError, match="max_buffered"):
        PubSubPush(once, "orders", check=None, limit=100, max_buffered=99)


async def _accept(message: Any) -> None:
    pass


def _scope() -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": "/", "headers": []}


async def _ignore(message: Any) -> None:
    pass
