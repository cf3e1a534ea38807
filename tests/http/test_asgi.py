"""What only ASGI has: clients that leave, tasks that are cancelled, messages that are not of ours."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import tempfile
import threading
import tracemalloc
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward import AsyncOnce, LeaseLost, MemoryStore
from onceward.core.held import current
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.body import IN_MEMORY, Body
from tests.sites import JSON, Reply, reply_to

App = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]


def scope_of(key: str | None = '"k1"', method: str = "POST", **more: Any) -> dict[str, Any]:
    headers = [JSON] if key is None else [JSON, (b"idempotency-key", key.encode())]
    return {
        "type": "http",
        "method": method,
        "path": "/pay",
        "raw_path": b"/pay",
        "query_string": b"",
        "headers": headers,
        **more,
    }


def messages_of(*chunks: bytes) -> list[dict[str, Any]]:
    chunks = chunks or (b"{}",)
    return [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
        for number, chunk in enumerate(chunks, 1)
    ]


@asynccontextmanager
async def guarded(app: Any, **choices: Any) -> AsyncIterator[IdempotencyMiddleware]:
    async with AsyncOnce(MemoryStore()) as once:
        yield IdempotencyMiddleware(app, once, **{"principal": lambda scope: "alice", "optional": ["/pay"], **choices})


async def ask(app: Any, scope: dict[str, Any] | None = None, *chunks: bytes) -> Reply:
    return await reply_to(app, scope or scope_of(), messages_of(*chunks))


class Counting:
    """Answers with how often it was asked. `steps` are taken in between."""

    def __init__(self, *steps: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.runs = 0
        self.seen: list[Any] = []
        self._steps = steps

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.runs += 1
        while (message := await receive()).get("more_body"):
            self.seen.append(message)
        self.seen.append(message)
        for step in self._steps:
            await step()
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        await send({"type": "http.response.body", "body": b"%d" % self.runs})


def replaying(*messages: Any) -> Callable[[], Coroutine[Any, Any, Any]]:
    left = list(messages)

    async def receive() -> Any:
        return left.pop(0)

    return receive


# ── what is not ours ──


@pytest.mark.fault("F77")
@pytest.mark.rival(15)
@pytest.mark.parametrize(
    "scope",
    [
        scope_of(method="GET"),
        scope_of(method="HEAD"),
        scope_of(None),
        scope_of(path="/other"),
        {"type": "websocket", "path": "/pay", "headers": [(b"idempotency-key", b'"k"')]},
        {"type": "lifespan"},
    ],
    ids=["get", "head", "no key", "other route", "websocket", "lifespan"],
)
async def test_what_is_not_ours_gets_the_very_objects_of_the_server(scope: dict[str, Any]) -> None:
    got: list[Any] = []

    async def app(*given: Any) -> None:
        got.extend(given)

    before = dict(scope)
    receive, send = object(), object()
    async with guarded(app) as middleware:
        await middleware(scope, receive, send)  # type: ignore[arg-type]  # nobody calls them
    assert [one is other for one, other in zip(got, (scope, receive, send), strict=True)] == [True] * 3
    assert scope == before


async def test_paths_are_compared_without_the_root_path_of_the_application() -> None:
    app = Counting()
    async with guarded(app) as middleware:
        mounted = scope_of(path="/api/pay", root_path="/api")
        assert [(await ask(middleware, dict(mounted))).body for _ in range(2)] == [b"1", b"1"]


@pytest.mark.rival(30)
async def test_a_root_path_that_only_begins_like_the_path_does_not_hide_a_route_that_wants_keys() -> None:
    app = Counting()
    async with guarded(app, required=["/payments"], optional=[]) as middleware:
        assert (await ask(middleware, scope_of(None, path="/payments", root_path="/pay"))).status == 400
        assert (await ask(middleware, scope_of(None, path="/pay/payments", root_path="/pay"))).status == 400
    assert app.runs == 0


async def test_a_principal_may_be_found_by_a_coroutine() -> None:
    async def principal(scope: Any) -> str:
        await asyncio.sleep(0)
        return "alice"

    app = Counting()
    async with guarded(app, principal=principal) as middleware:
        assert [(await ask(middleware)).body for _ in range(2)] == [b"1", b"1"]


# ── the body ──


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
@pytest.mark.parametrize("size", [IN_MEMORY - 1, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY + 7])
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
async def test_who_stops_waiting_for_a_part_of_the_body_gets_it_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * (IN_MEMORY // 128)
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
    body = Body(IN_MEMORY)
    tracemalloc.start()
    try:
        for number in range(100_000):
            body.add(b"%03d" % (number % 1_000))
            if body.full:
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
    body, files = Body(10 * IN_MEMORY), []
    make = tempfile.TemporaryFile

    def make_late(**options: Any) -> Any:
        body.close()  # by the loop, whose request was cancelled
        files.append(make(**options))
        return files[-1]

    monkeypatch.setattr("onceward.http.body.tempfile.TemporaryFile", make_late)
    body.add(bytes(IN_MEMORY + 1))
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


# ── a client that leaves ──


class Leaving:
    """A client that sends its request and is gone."""

    def __init__(self) -> None:
        self._asked = False
        self.told = 0

    async def receive(self) -> Any:
        if not self._asked:
            self._asked = True
            return messages_of()[0]
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.told += 1
        raise OSError("the client has left")


@pytest.mark.fault("F76")
async def test_when_the_client_leaves_the_work_finishes_and_is_kept() -> None:
    async def nothing_is_told() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    app = Counting(nothing_is_told)
    client = Leaving()
    async with guarded(app) as middleware:
        await middleware(scope_of(), client.receive, client.send)
        assert client.told == 1
        reply = await ask(middleware)
    assert (reply.body, reply.replayed, app.runs) == (b"1", True, 1)


class Stalling:
    """A client that takes the first part of an answer, then nothing more, and does not leave."""

    def __init__(self, takes: int = 2) -> None:
        self._asked = False
        self._takes = takes  # messages: the head is the first
        self.told: list[Any] = []
        self.stalls = asyncio.Event()

    async def receive(self) -> Any:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return messages_of()[0]

    async def send(self, message: Any) -> None:
        if len(self.told) == self._takes:
            self.stalls.set()
            await asyncio.Event().wait()
        self.told.append(message)


async def in_three_parts(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in (b"a", b"b", b"c"):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.fault("F76")
@pytest.mark.parametrize("takes", [0, 1, 2, 3])
async def test_a_client_that_stalls_keeps_no_key_the_work_finishes_and_is_kept(takes: int) -> None:
    client = Stalling(takes)
    async with guarded(in_three_parts, stall_timeout="50ms") as middleware:
        await middleware(scope_of(), client.receive, client.send)
        reply = await ask(middleware)
    assert (reply.body, reply.replayed) == (b"abc", True)
    assert len(client.told) == takes, "what it did not take is not sent behind it"


@pytest.mark.fault("F76")
async def test_a_client_that_stalls_when_the_record_is_written_may_take_its_time() -> None:
    """Nothing depends on it any more: how long it may take is the server's business."""
    client = Stalling(takes=4)
    async with guarded(in_three_parts, stall_timeout="50ms") as middleware:
        task = asyncio.create_task(middleware(scope_of(), client.receive, client.send))
        await client.stalls.wait()
        assert (await ask(middleware)).replayed
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.fault("F76")
async def test_the_application_is_not_told_that_the_client_has_left_until_it_has_answered() -> None:
    told: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

        async def listen() -> None:  # as the streaming answers of many frameworks do
            told.append((await receive())["type"])

        listener = asyncio.create_task(listen())
        for number in range(3):
            await asyncio.sleep(0)
            if not number:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})
        assert told == []
        await send({"type": "http.response.body", "body": b""})
        await listener

    client = Leaving()
    async with guarded(app) as middleware:
        await middleware(scope_of(), client.receive, client.send)
        assert (await ask(middleware)).body == b"012"
    assert told == ["http.disconnect"]


@pytest.mark.fault("F76", "F28")
async def test_when_the_server_cancels_its_task_the_work_finishes_and_is_kept() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await go.wait()

    app = Counting(wait)
    async with guarded(app, wait="30s") as middleware:
        task = asyncio.create_task(ask(middleware))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        duplicate = asyncio.create_task(ask(middleware))
        await asyncio.sleep(0)
        go.set()
        assert (await duplicate).body == b"1"
    assert app.runs == 1


@pytest.mark.fault("F76")
async def test_when_the_server_cancels_a_request_whose_client_stopped_reading_the_work_finishes_and_is_kept() -> None:
    stuck = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        async with asyncio.TaskGroup() as group:  # as Starlette does
            group.create_task(send({"type": "http.response.body", "body": b"a", "more_body": True}))
        await send({"type": "http.response.body", "body": b"b", "more_body": True})
        await send({"type": "http.response.body", "body": b"c"})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            stuck.set()
            await asyncio.Event().wait()

    async with guarded(app, wait="30s") as middleware:
        request = asyncio.ensure_future(middleware(scope_of(), replaying(*messages_of()), send))
        await stuck.wait()
        request.cancel()
        await asyncio.wait([request])
        assert request.cancelled()
        reply = await ask(middleware)
        assert (reply.replayed, reply.body) == (True, b"abc")


@pytest.mark.fault("F28")
async def test_a_request_that_is_cancelled_while_it_waits_leaves_no_claim_behind() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await go.wait()

    app = Counting(wait)
    async with guarded(app, wait="30s") as middleware:
        first = asyncio.create_task(ask(middleware))
        await begun.wait()
        second = asyncio.create_task(ask(middleware))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        go.set()
        assert (await first).body == b"1"
        assert middleware.contract.engine.keeper._holds == {}  # type: ignore[attr-defined]  # a Keeper has them


@pytest.mark.fault("F28")
async def test_a_large_request_that_is_cancelled_while_it_waits_leaves_no_file_open() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await go.wait()

    chunks = [b"x" * 100_000] * 20
    async with guarded(Counting(wait), wait="30s") as middleware:
        first = asyncio.create_task(ask(middleware, None, *chunks))
        await begun.wait()
        second = asyncio.create_task(ask(middleware, None, *chunks))
        while len(open_bodies()) < 2:  # noqa: ASYNC110 (nobody would ring for it)
            await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert len(open_bodies()) == 1
        go.set()
        assert (await first).status == 200
    assert open_bodies() == []


def open_bodies() -> list[Body]:
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is Body and one._file is not None and not one._file.closed]


# ── the answer ──


@pytest.mark.rival(15)
async def test_the_parts_of_a_stream_go_out_as_they_come_but_the_last_waits_for_the_record() -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await go.wait()
        await send({"type": "http.response.body", "body": b"two"})

    async with guarded(app) as middleware:
        once = middleware.contract.engine

        async def receive() -> Any:
            return messages_of()[0]

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                completed = once.bus.counts["completed"]
                heard.put_nowait(message["body"] + (b" recorded" if completed else b""))

        task = asyncio.create_task(middleware(scope_of(), receive, send))
        assert await heard.get() == b"one"
        go.set()
        await task
        assert await heard.get() == b"two recorded"
        assert (await ask(middleware)).body == b"onetwo"


async def test_what_was_announced_by_its_length_is_recorded_before_its_last_byte_goes_out() -> None:
    """Middlewares between us and the handler often make a stream of one part, and then an empty one, of any answer."""
    counts: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with guarded(app) as middleware:

        async def receive() -> Any:
            return messages_of()[0]

        async def send(message: Any) -> None:
            counts.append(middleware.contract.engine.bus.counts["completed"])

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


async def test_an_application_that_begins_two_answers_is_told_so_and_none_is_kept() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        await send({"type": "http.response.start", "status": 201, "headers": [JSON]})
        await send({"type": "http.response.body", "body": b"which?"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with guarded(app) as middleware:
        with pytest.raises(RuntimeError, match="begun before"):
            await middleware(scope_of(), replaying(*messages_of()), send)
    assert sent == []


async def test_a_stream_whose_key_is_lost_on_the_way_is_visibly_not_whole() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        held = current()
        assert held is not None
        assert held.on_lost is not None
        held.on_lost()  # as the keeper does when the store shows another owner
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        """Takes everything."""

    async with guarded(app, on_lost="cancel") as middleware:
        with pytest.raises(LeaseLost):
            await middleware(scope_of(), replaying(*messages_of()), send)


async def test_an_application_that_ends_without_an_answer_has_failed() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async with guarded(app) as middleware:
        for _ in range(2):
            with pytest.raises(Exception, match="without completing its answer"):
                await ask(middleware)


async def test_ways_to_answer_that_would_go_past_us_are_hidden_and_others_are_not() -> None:
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
async def test_what_the_application_writes_into_its_scope_is_seen_in_front_of_us(extensions: dict[str, Any]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["route"] = "/pay"  # as routers do, for tracing and metrics
        await Counting()(scope, receive, send)

    async with guarded(app) as middleware:
        scope = scope_of(extensions=extensions)
        await ask(middleware, scope)
    assert scope["route"] == "/pay"


async def test_what_the_server_says_against_an_answer_is_raised_when_the_work_is_done() -> None:
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


# ── what is left ──


@pytest.mark.parametrize("status", [200, 503])
async def test_nothing_of_a_request_waits_for_the_garbage_collector(status: int) -> None:
    exchanges: list[weakref.ref[Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        exchanges.append(weakref.ref(receive.__self__))
        await send({"type": "http.response.start", "status": status, "headers": [JSON]})
        await send({"type": "http.response.body", "body": b"large"})

    async with guarded(app) as middleware:
        gc.collect()
        gc.disable()
        try:
            for number in range(3):
                await ask(middleware, scope_of(f'"k{number}"'))
            await asyncio.sleep(0)
            assert [exchange() for exchange in exchanges] == [None] * 3
        finally:
            gc.enable()
