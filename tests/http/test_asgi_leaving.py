"""Clients that disconnect or stall, servers that cancel: the ASGI application finishes and its answer is kept."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from onceward import StoreUnavailable
from onceward.engine.attempt import Attempt
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.body import Body
from tests.http.asgi_calls import Counting, ask, guarded, messages_of, replaying, scope_of
from tests.sites import JSON


class Leaving:
    """A client that sends its request and disconnects."""

    def __init__(self) -> None:
        self._asked = False
        self.sent = 0

    async def receive(self) -> Any:
        if not self._asked:
            self._asked = True
            return messages_of()[0]
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent += 1
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
        assert client.sent == 1
        reply = await ask(middleware)
    assert (reply.body, reply.replayed, app.runs) == (b"1", True, 1)


class Stalling:
    """A client that reads the first part of an answer, then nothing more, and does not disconnect."""

    def __init__(self, takes: int = 2) -> None:
        self._asked = False
        self._takes = takes  # messages: the head is the first
        self.messages: list[Any] = []
        self.stalls = asyncio.Event()

    async def receive(self) -> Any:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return messages_of()[0]

    async def send(self, message: Any) -> None:
        if len(self.messages) == self._takes:
            self.stalls.set()
            await asyncio.Event().wait()
        self.messages.append(message)


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
    assert len(client.messages) == takes, "the parts that it did not read are not sent later"


@pytest.mark.fault("F76")
async def test_a_client_that_stalls_when_the_record_is_written_may_take_its_time() -> None:
    """Nothing depends on the client any more: the server decides how long it may take."""
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
async def test_the_application_sees_the_disconnect_only_after_it_has_answered() -> None:
    received: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

        async def listen() -> None:  # as the streaming answers of many frameworks do
            received.append((await receive())["type"])

        listener = asyncio.create_task(listen())
        for number in range(3):
            await asyncio.sleep(0)
            if not number:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})
        assert received == []
        await send({"type": "http.response.body", "body": b""})
        await listener

    client = Leaving()
    async with guarded(app) as middleware:
        await middleware(scope_of(), client.receive, client.send)
        assert (await ask(middleware)).body == b"012"
    assert received == ["http.disconnect"]


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


@pytest.mark.fault("F76", "F28")
async def test_when_the_server_cancels_its_task_just_as_the_work_has_returned_it_is_kept() -> None:
    async def cancel_behind_us() -> None:
        asyncio.get_running_loop().call_soon(task.cancel)

    app = Counting(cancel_behind_us)
    async with guarded(app, wait="30s") as middleware:
        task = asyncio.create_task(ask(middleware))
        with pytest.raises(asyncio.CancelledError):
            await task
        reply = await ask(middleware)
    assert (reply.body, reply.replayed, app.runs) == (b"1", True, 1)


class Slow:
    """Delay the settlements of a store: each waits until it is released, and the first `fail` of them fail."""

    def __init__(self, middleware: IdempotencyMiddleware, monkeypatch: pytest.MonkeyPatch, fail: int = 0) -> None:
        engine = middleware.config.engine
        self._settle = engine.store.settle
        self._left = fail
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(engine.store, "inline", False)
        monkeypatch.setattr(engine.store, "settle", self.settle)

    async def settle(self, *args: Any, **kwargs: Any) -> Any:
        self.asked.set()
        await self.go.wait()
        self._left -= 1
        if self._left >= 0:
            raise StoreUnavailable("not now")
        return await self._settle(*args, **kwargs)


async def cancelled_while_recorded(monkeypatch: pytest.MonkeyPatch, fail: int) -> tuple[bytes, bool, int]:
    """Return the next answer, whether it is a replay, and how often the work ran."""
    app = Counting()
    async with guarded(app, wait="30s") as middleware:
        store = Slow(middleware, monkeypatch, fail)
        task = asyncio.create_task(ask(middleware))
        await store.asked.wait()
        task.cancel()
        await asyncio.sleep(0)
        store.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        reply = await ask(middleware)
    return reply.body, reply.replayed, app.runs


@pytest.mark.fault("F76", "F28")
@pytest.mark.parametrize("fail", [0, 1])
async def test_when_the_server_cancels_its_task_while_the_answer_is_recorded_it_is_kept(
    monkeypatch: pytest.MonkeyPatch, fail: int
) -> None:
    assert await cancelled_while_recorded(monkeypatch, fail) == (b"1", True, 1)


@pytest.mark.fault("F76", "F28", "F51")
@pytest.mark.parametrize("fail", [1, 3])
async def test_a_server_that_cancels_its_task_while_the_store_is_down_does_not_shorten_the_work_s_patience(
    monkeypatch: pytest.MonkeyPatch, fail: int
) -> None:
    """The cancelled request ends soon; its result is still recorded as soon as the store is back."""
    monkeypatch.setattr(Attempt, "hurry", lambda held: setattr(held, "patience", 0.0))
    assert await cancelled_while_recorded(monkeypatch, fail) == (b"1", True, 1)


@pytest.mark.fault("F28")
async def test_a_signal_that_comes_before_the_work_has_begun_gives_the_key_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(held: Attempt) -> None:
        raise InterruptedError

    app = Counting()
    async with guarded(app, after_crash="park") as middleware:
        with monkeypatch.context() as patch:
            patch.setattr(Attempt, "begin", interrupted)
            with pytest.raises(InterruptedError):
                await ask(middleware)
        reply = await ask(middleware)
    assert (reply.body, reply.replayed, app.runs) == (b"1", False, 1)


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
        assert middleware.config.engine.heartbeat.held() == []  # type: ignore[attr-defined]  # only `Heartbeat` has them


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
        while len(open_bodies()) < 2:  # noqa: ASYNC110 (nothing would set an event)
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
