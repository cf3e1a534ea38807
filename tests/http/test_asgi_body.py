"""The body of a request on its way to an ASGI application."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from onceward.http.body import MAX_IN_MEMORY, Body
from tests.http.asgi_calls import Counting, ask, guarded, messages_of, scope_of
from tests.sites import JSON, reply_to


async def test_a_small_body_reaches_the_application_as_the_very_message_of_the_server() -> None:
    app = Counting()
    message = messages_of(b'{"a": 1}')[0]
    async with guarded(app) as middleware:
        await reply_to(middleware, scope_of(), [message])
    assert app.seen[0] is message


async def test_in_how_many_parts_a_body_comes_makes_no_difference() -> None:
    app = Counting()
    async with guarded(app) as middleware:
        assert (await ask(middleware, None, b"abc", b"", b"def")).body == b"1"
        assert (await ask(middleware, None, b"abcdef")).replayed
        assert (await ask(middleware, None, b"a", b"bcdef")).replayed
        assert (await ask(middleware, None, b"abcde")).status == 422
    assert b"".join(message["body"] for message in app.seen) == b"abcdef"


@pytest.mark.fault("F77")
@pytest.mark.parametrize("size", [MAX_IN_MEMORY - 1, MAX_IN_MEMORY, MAX_IN_MEMORY + 1, 3 * MAX_IN_MEMORY + 7])
async def test_an_upload_is_handed_on_byte_for_byte_from_memory_or_from_a_file(size: int) -> None:
    digest, seen = hashlib.sha256(), 0
    open_ended = True

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal seen, open_ended
        while open_ended:
            message = await receive()
            digest.update(message["body"])
            seen += len(message["body"])
            open_ended = message["more_body"]
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    body = bytes(range(251)) * (size // 251 + 1)
    chunks = [body[start : start + 65_537] for start in range(0, size, 65_537)]
    chunks[-1] = chunks[-1][: size - 65_537 * (len(chunks) - 1)]
    async with guarded(app) as middleware:
        assert (await ask(middleware, None, *chunks)).status == 204
        assert (await ask(middleware, None, *chunks)).replayed
    assert (seen, digest.digest()) == (size, hashlib.sha256(body[:size]).digest())


@pytest.mark.fault("F77")
async def test_an_application_that_stops_waiting_for_a_part_of_the_body_gets_it_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytes(range(256)) * (MAX_IN_MEMORY // 128)
    reading, go_on = threading.Event(), threading.Event()
    read = Body.read

    def slow_read(body: Body) -> bytes:
        reading.set()
        go_on.wait()
        return read(body)

    monkeypatch.setattr(Body, "read", slow_read)
    got: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        impatient = asyncio.ensure_future(receive())
        await asyncio.to_thread(reading.wait)
        impatient.cancel()
        await asyncio.wait([impatient])
        go_on.set()
        while (message := await receive())["more_body"]:
            got.append(message["body"])
        got.append(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        await send({"type": "http.response.body", "body": b""})

    async with guarded(app) as middleware:
        reply = await asyncio.wait_for(ask(middleware, None, data), 30)
    assert reply.status == 200
    assert hashlib.sha256(b"".join(got)).digest() == hashlib.sha256(data).digest()


def test_a_body_in_very_many_very_small_parts_takes_no_more_memory_than_it_has_bytes() -> None:
    body = Body(MAX_IN_MEMORY)
    tracemalloc.start()
    try:
        for number in range(100_000):
            body.add(b"%03d" % (number % 1_000))
            if body.should_flush:
                body.flush()
        body.end()
        now, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < 2 * body.size
    body.close()


def test_a_body_that_is_given_up_while_its_file_is_made_in_a_thread_leaves_no_file_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body, files = Body(10 * MAX_IN_MEMORY), []
    make = tempfile.TemporaryFile

    def make_late(**options: Any) -> Any:
        body.close()  # by the loop, whose request was cancelled
        files.append(make(**options))
        return files[-1]

    monkeypatch.setattr("onceward.http.body.tempfile.TemporaryFile", make_late)
    body.add(bytes(MAX_IN_MEMORY + 1))
    body.flush()
    assert [file.closed for file in files] == [True]


async def test_a_large_body_is_hashed_written_and_read_where_it_keeps_no_loop_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: dict[str, set[bool]] = {"flush": set(), "read": set()}
    here = threading.get_ident()
    for name, seen in threads.items():
        monkeypatch.setattr(Body, name, noting(getattr(Body, name), seen, here))
    async with guarded(Counting()) as middleware:
        await ask(middleware, None, *[b"x" * 65_536] * 40)
        assert threads == {"flush": {False}, "read": {False}}
        await ask(middleware, scope_of('"k2"'), b"small", b"parts")
        assert threads == {"flush": {False, True}, "read": {False, True}}


def noting(method: Callable[..., Any], seen: set[bool], here: int) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        seen.add(threading.get_ident() == here)
        return method(*args)

    return call


async def test_a_client_that_leaves_before_its_request_is_whole_has_asked_for_nothing() -> None:
    app = Counting()
    parts = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    async with guarded(app) as middleware:
        await middleware(scope_of(), receive, send)
        assert (await ask(middleware)).body == b"1"
    assert sent == []
