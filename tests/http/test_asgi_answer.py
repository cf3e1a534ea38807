"""The answer of an ASGI application on its way to the client and into the record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward import LeaseLost
from onceward.engine.attempt import current
from tests.http.asgi_calls import Counting, ask, guarded, messages_of, replaying, scope_of
from tests.sites import JSON, Reply


@pytest.mark.rival(15)
async def test_the_parts_of_a_stream_go_out_as_they_come_but_the_last_waits_for_the_record() -> None:
    parts_sent: asyncio.Queue[bytes] = asyncio.Queue()
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await go.wait()
        await send({"type": "http.response.body", "body": b"two"})

    async with guarded(app) as middleware:
        once = middleware.config.engine

        async def receive() -> Any:
            return messages_of()[0]

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                completed = once.bus.counts["completed"]
                parts_sent.put_nowait(message["body"] + (b" recorded" if completed else b""))

        task = asyncio.create_task(middleware(scope_of(), receive, send))
        assert await parts_sent.get() == b"one"
        go.set()
        await task
        assert await parts_sent.get() == b"two recorded"
        assert (await ask(middleware)).body == b"onetwo"


async def test_an_answer_with_a_content_length_is_recorded_before_its_last_byte_is_sent() -> None:
    """Middlewares between ours and the handler often turn any answer into a stream: one part, then an empty one."""
    counts: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with guarded(app) as middleware:

        async def receive() -> Any:
            return messages_of()[0]

        async def send(message: Any) -> None:
            counts.append(middleware.config.engine.bus.counts["completed"])

        await middleware(scope_of(), receive, send)
        assert counts == [1, 1, 1]
        assert (await ask(middleware)).body == b"one"


async def test_background_tasks_delay_neither_the_answer_nor_the_record() -> None:
    go = asyncio.Event()
    answered = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})
        await go.wait()
        raise LookupError("of the background task")

    async with guarded(app) as middleware:

        async def receive() -> Any:
            return messages_of()[0]

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                answered.set()

        task = asyncio.create_task(middleware(scope_of(), receive, send))
        await answered.wait()
        assert (await ask(middleware)).body == b"done"
        go.set()
        with pytest.raises(LookupError):
            await task
        assert (await ask(middleware)).replayed, "what the background task raises changes nothing"


async def test_headers_that_can_be_read_only_once_reach_the_client_and_the_record() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": iter([JSON, (b"x-one", b"1")])})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    async with guarded(app) as middleware:
        for _ in range(2):
            reply = await ask(middleware)
            assert (reply.header("content-type"), reply.header("x-one")) == ("application/json", "1")


@pytest.mark.rival(14)
async def test_a_buffer_that_the_application_uses_again_is_kept_as_it_was_when_it_was_sent() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        buffer = bytearray(1)
        for letter in b"abc":
            buffer[0] = letter
            await send({"type": "http.response.body", "body": memoryview(buffer), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with guarded(app) as middleware:
        await ask(middleware)
        reply = await ask(middleware)
        assert (reply.replayed, reply.body) == (True, b"abc")


async def test_an_application_that_begins_two_answers_gets_an_error_and_none_is_kept() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        await send({"type": "http.response.start", "status": 201, "headers": [JSON]})
        await send({"type": "http.response.body", "body": b"which?"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with guarded(app) as middleware:
        with pytest.raises(RuntimeError, match="already started"):
            await middleware(scope_of(), replaying(*messages_of()), send)
    assert sent == []


async def test_a_stream_whose_key_is_lost_on_the_way_is_visibly_not_whole() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        held = current()
        assert held is not None
        assert held.on_lost is not None
        held.on_lost()  # as the heartbeat does when the store shows another owner
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        """Accept every message."""

    async with guarded(app, on_lost="cancel") as middleware:
        with pytest.raises(LeaseLost):
            await middleware(scope_of(), replaying(*messages_of()), send)


async def test_an_application_that_ends_without_an_answer_has_failed() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async with guarded(app) as middleware:
        for _ in range(2):
            with pytest.raises(Exception, match="without completing its response"):
                await ask(middleware)


async def test_extensions_that_bypass_the_middleware_are_hidden_and_others_are_not() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["extensions"])
        await Counting()(scope, receive, send)

    extensions = {"http.response.pathsend": {}, "http.response.trailers": {}, "tls": {"version": 772}}
    async with guarded(app) as middleware:
        scope = scope_of(extensions=extensions)
        await ask(middleware, scope)
    assert seen == [{"tls": {"version": 772}}]
    assert len(extensions) == 3, "the server's own"


@pytest.mark.parametrize("extensions", [{}, {"http.response.pathsend": {}}])
async def test_changes_of_the_scope_by_the_application_are_visible_to_outer_middlewares(
    extensions: dict[str, Any],
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["route"] = "/pay"  # as routers do for tracing and metrics
        await Counting()(scope, receive, send)

    async with guarded(app) as middleware:
        scope = scope_of(extensions=extensions)
        await ask(middleware, scope)
    assert scope["route"] == "/pay"


async def test_an_error_of_the_server_about_an_answer_is_raised_when_the_work_is_done() -> None:
    app = Counting()

    async def receive() -> Any:
        return messages_of()[0]

    async def send(message: Any) -> None:
        raise ValueError("illegal header value")

    async with guarded(app) as middleware:
        with pytest.raises(ValueError, match="illegal header"):
            await middleware(scope_of(), receive, send)
        assert (await ask(middleware)).body == b"1"


@pytest.mark.fault("F35")
async def test_a_request_with_the_same_key_from_inside_of_the_handler_does_not_wait_for_itself() -> None:
    inner: list[Reply] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        inner.append(await ask(middleware))
        await Counting()(scope, receive, send)

    async with guarded(app, wait="30s") as middleware:
        assert (await ask(middleware)).status == 200
    assert inner[0].status == 500
    assert inner[0].problem["code"] == "reentrant"
