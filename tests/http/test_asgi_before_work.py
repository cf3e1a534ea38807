"""The key was acquired, but the ASGI application never starts: nothing happened, so the key is released."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward.engine.attempt import Attempt
from onceward.http import request_run
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.request_run import RequestRun
from tests.http.asgi_calls import Counting, ask, guarded

Returned = asyncio.Future[BaseException | None]


class Alarm(BaseException):
    """Raised by the handler of a signal."""


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
    assert middleware.config.engine.heartbeat.held() == []  # type: ignore[attr-defined]  # only `Heartbeat` has them


@pytest.mark.fault("F28")
async def test_a_request_whose_work_a_signal_interrupts_is_cancelled_and_keeps_no_key() -> None:
    async def interrupted() -> None:
        raise Alarm

    async with guarded(Counting(interrupted)) as middleware:
        request = asyncio.create_task(ask(middleware))
        await asyncio.wait([request], timeout=30)
        assert request.cancelled()
        await given_back(middleware)
