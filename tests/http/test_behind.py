"""What an application does after its answer, and when that answer is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from onceward.http.request_run import SuspensionHook
from tests.http.asgi_calls import ask, guarded, messages_of, scope_of

Behind = Callable[[Any, Any], Coroutine[Any, Any, None]]


def app_with(behind: Behind) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})
        await behind(receive, send)

    return app


async def nothing(receive: Any, send: Any) -> None:
    """It returns."""


async def waits(receive: Any, send: Any) -> None:
    await asyncio.sleep(0)


async def raises(receive: Any, send: Any) -> None:
    raise LookupError("behind its answer")


async def waits_and_raises(receive: Any, send: Any) -> None:
    await asyncio.sleep(0)
    raise LookupError("behind its answer")


async def is_cancelled(receive: Any, send: Any) -> None:
    raise asyncio.CancelledError


async def sends_more(receive: Any, send: Any) -> None:
    await send({"type": "http.response.body", "body": b"and more"})
    await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"and more"})


async def looks_for_its_client(receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "http.disconnect", "the answer was sent"


RAISED: dict[Behind, type[object]] = {
    raises: LookupError,
    waits_and_raises: LookupError,
    is_cancelled: asyncio.CancelledError,
}


@pytest.mark.mission("C8")
@pytest.mark.parametrize(
    "behind", [nothing, waits, raises, waits_and_raises, is_cancelled, sends_more, looks_for_its_client]
)
async def test_whatever_comes_behind_an_answer_it_is_recorded_and_then_sent_once(behind: Behind) -> None:
    async with guarded(app_with(behind)) as middleware:
        sent: list[Any] = []

        async def receive() -> Any:
            return messages_of()[0]

        async def send(message: Any) -> None:
            assert (await ask(middleware)).replayed, "a client that has the answer can rely on it"
            sent.append(message)

        request = asyncio.create_task(middleware(scope_of(), receive, send))
        [error] = await asyncio.gather(request, return_exceptions=True)
        assert type(error) is RAISED.get(behind, type(None))
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        assert sent[1]["body"] == b"done"
        assert (await ask(middleware)).body == b"done"


@pytest.mark.mission("C8")
async def test_an_answer_does_not_wait_for_what_comes_behind_it_even_if_its_client_has_left() -> None:
    go, over = asyncio.Event(), asyncio.Event()

    async def takes_its_time(receive: Any, send: Any) -> None:
        await go.wait()
        over.set()

    async with guarded(app_with(takes_its_time)) as middleware:
        answered = asyncio.Event()

        async def receive() -> Any:
            return messages_of()[0]

        async def send(message: Any) -> None:
            answered.set()
            await asyncio.Event().wait()  # reads nothing

        request = asyncio.create_task(middleware(scope_of(), receive, send))
        await answered.wait()
        assert (await ask(middleware)).replayed
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        go.set()
        await over.wait()


# ── how the middleware notices that an application waits ──


async def test_the_hook_runs_when_the_application_waits_and_exceptions_reach_it() -> None:
    looks: list[str] = []
    caught: list[BaseException] = []

    async def app() -> None:
        looks.append("begun")
        await asyncio.sleep(0)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            caught.append(error)
        await asyncio.sleep(0)

    async def work() -> None:
        await SuspensionHook(app(), lambda: looks.append("waits"))

    task = asyncio.create_task(work())
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    await task
    assert looks == ["begun", "waits", "waits", "waits"]
    assert caught


async def test_an_application_that_is_closed_while_it_waits_is_closed_like_any_coroutine() -> None:
    closed = False

    async def app() -> None:
        nonlocal closed
        try:
            await asyncio.sleep(0)
        finally:
            closed = True

    async def work() -> None:
        await SuspensionHook(app(), lambda: None)

    coroutine = work()
    coroutine.send(None)
    coroutine.close()
    assert closed
