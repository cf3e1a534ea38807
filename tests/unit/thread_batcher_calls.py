"""Threads that call a batcher in a known order, behind a call that is in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from onceward.protocol.requests import Answer, AnyRequest
from onceward.runtime.thread_batcher import ThreadBatcher
from onceward.runtime.threads import run
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.batcher_calls import ThreadSend, answer_to, request, until

PATIENCE = 30.0


def ask(batcher: ThreadBatcher, one: AnyRequest, timeout: float = PATIENCE) -> Answer:
    async def call() -> Answer:
        [answer] = await batcher.ask(one, timeout)
        return answer

    return run(call())


def once_queued(batcher: ThreadBatcher, many: int, then: Callable[[], None]) -> None:
    until(lambda: batcher.waiting() == many)
    then()


def start(batcher: ThreadBatcher, *requests: AnyRequest, timeout: float = PATIENCE) -> list[Future[Any]]:
    """Start one thread per request, queued in this order behind a call that is in flight."""
    started: list[Future[Any]] = []
    for one in requests:
        before = batcher.waiting()
        started.append(in_thread(ask, batcher, one, timeout))
        until(lambda: batcher.waiting() > before)  # noqa: B023 (called immediately)
    return started


@contextmanager
def under_way(holds: int = 1) -> Iterator[tuple[ThreadBatcher, ThreadSend]]:
    """Yield a batcher whose first call is inside the store."""
    send = ThreadSend(holds)
    batcher = ThreadBatcher(send)
    first = in_thread(ask, batcher, request("first"))
    send.reached()
    yield batcher, send
    for number in range(holds):
        send.go(number)
    assert first.result(TOO_LONG) == answer_to(request("first"))
    until(lambda: not batcher.is_sending())
