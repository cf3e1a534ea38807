"""Threads that call a lane: in an order that is known, behind a call that is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from onceward.protocol.requests import Answer, AnyRequest
from onceward.runtime.bridge import run
from onceward.runtime.thread_batcher import ThreadBatcher
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.lane_calls import ThreadSend, answer_to, request, until

PATIENCE = 30.0


def ask(lane: ThreadBatcher, one: AnyRequest, timeout: float = PATIENCE) -> Answer:
    async def call() -> Answer:
        [answer] = await lane.ask(one, timeout)
        return answer

    return run(call())


def queued(lane: ThreadBatcher) -> int:
    return len(lane._queue._waiting)


def once_queued(lane: ThreadBatcher, many: int, then: Callable[[], None]) -> None:
    until(lambda: queued(lane) == many)
    then()


def start(lane: ThreadBatcher, *requests: AnyRequest, timeout: float = PATIENCE) -> list[Future[Any]]:
    """One thread each, queued in this order behind a call that is under way."""
    started: list[Future[Any]] = []
    for one in requests:
        before = queued(lane)
        started.append(in_thread(ask, lane, one, timeout))
        until(lambda: queued(lane) > before)  # noqa: B023 (called at once)
    return started


@contextmanager
def under_way(holds: int = 1) -> Iterator[tuple[ThreadBatcher, ThreadSend]]:
    """A lane whose first call is inside of the store."""
    send = ThreadSend(holds)
    lane = ThreadBatcher(send)
    first = in_thread(ask, lane, request("first"))
    send.reached()
    yield lane, send
    for number in range(holds):
        send.go(number)
    assert first.result(TOO_LONG) == answer_to(request("first"))
    until(lambda: not lane._baton.locked())
