"""The key was acquired, but the ASGI application never starts: nothing happened, so the key is released."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onceward.engine import detached as apart
from onceward.engine.attempt import Attempt
from onceward.http import asgi, request_run
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.request_run import RequestRun
from tests.http.asgi_calls import Counting, ask, guarded
from tests.integration.interrupts import Alarm, AlarmError, ignore_unawaited, interrupted_at

__all__ = ["ignore_unawaited"]  # a fixture, imported here so that pytest finds it

OURS = {str(Path(module.__file__ or "")) for module in (apart, asgi, request_run)}

Returned = asyncio.Future[BaseException | None]


def cancel_work(one: RequestRun) -> None:
    assert one._task is not None
    one._task.cancel()


def cancel_both(one: RequestRun) -> None:
    """Cancel both tasks, as a closing event loop does."""
    server = asyncio.current_task()
    assert server is not None
    server.cancel()
    cancel_work(one)


def raise_alarm(one: RequestRun) -> None:
    raise Alarm


@pytest.mark.fault("F28")
@pytest.mark.parametrize("strike", [cancel_work, cancel_both, raise_alarm])
async def test_an_interruption_before_the_first_step_of_the_work_gives_the_key_back(
    monkeypatch: pytest.MonkeyPatch, strike: Any
) -> None:
    original = RequestRun.start_app

    def start_app(one: RequestRun, held: Attempt) -> Returned:
        returned = original(one, held)
        strike(one)
        return returned

    app = Counting()
    async with guarded(app, after_crash="park") as middleware:
        with monkeypatch.context() as patch:
            patch.setattr(RequestRun, "start_app", start_app)
            request = asyncio.create_task(ask(middleware))
            done, _ = await asyncio.wait([request], timeout=30)
        assert done, "waiting callers get the result"
        assert request.cancelled() or isinstance(request.exception(), Alarm)
        await given_back(middleware)
        reply = await ask(middleware)
    assert (reply.body, reply.replayed, app.runs) == (b"1", False, 1)
    assert request_run._running_tasks == set()


async def given_back(middleware: IdempotencyMiddleware) -> None:
    """Check that its lease is not renewed. The task of the application, if not cancelled, had time to run."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert middleware.config.engine.heartbeat._holds == {}  # type: ignore[attr-defined]  # only `Heartbeat` has them


@pytest.mark.fault("F28")
@pytest.mark.usefixtures("ignore_unawaited")
@pytest.mark.parametrize("alarm", [Alarm, AlarmError])
def test_a_signal_at_any_step_before_the_work_gives_the_key_back(
    alarm: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Attempt] = []
    original = Attempt.begin

    def begin(held: Attempt) -> None:
        begun.append(held)
        original(held)

    monkeypatch.setattr(Attempt, "begin", begin)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # the task that the signal interrupted
    released = 0
    for step in range(1, 1000):
        app = Counting()
        site = guarded(app, after_crash="park")
        middleware = loop.run_until_complete(site.__aenter__())
        request = loop.create_task(ask(middleware))
        wait = partial(loop.run_until_complete, asyncio.wait([request], timeout=30))
        assert interrupted_at(step, wait, alarm, ours=OURS)
        assert request.cancelled() or isinstance(request.exception(), alarm)
        early = not begun
        if early:
            released += middleware.config.engine.bus.counts.get("released", 0)
            loop.run_until_complete(given_back(middleware))
            reply = loop.run_until_complete(ask(middleware))
            assert (step, reply.body, reply.replayed, app.runs) == (step, b"1", False, 1)
            begun.clear()
        loop.run_until_complete(site.__aexit__(None, None, None))
        if not early:
            break
    assert released > 5
    loop.close()


@pytest.mark.fault("F28")
async def test_a_request_whose_work_a_signal_interrupts_is_cancelled_and_keeps_no_key() -> None:
    async def interrupted() -> None:
        raise Alarm

    async with guarded(Counting(interrupted)) as middleware:
        request = asyncio.create_task(ask(middleware))
        await asyncio.wait([request], timeout=30)
        assert request.cancelled()
        await given_back(middleware)


@pytest.mark.fault("F28", "F76")
async def test_work_interrupted_after_its_last_step_is_recorded_without_a_waiting_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    original = request_run._run_detached

    def interrupted(work: Coroutine[Any, Any, object]) -> None:
        work.close()
        monkeypatch.setattr(request_run, "_run_detached", original)
        raise Alarm

    async def wait() -> None:
        begun.set()
        await go.wait()

    app = Counting(wait)
    async with guarded(app, wait="30s") as middleware:
        request = asyncio.create_task(ask(middleware))
        await begun.wait()
        request.cancel()
        await asyncio.wait([request])
        monkeypatch.setattr(request_run, "_run_detached", interrupted)
        go.set()
        reply = await ask(middleware)
    assert (reply.body, reply.replayed, app.runs) == (b"1", True, 1)
