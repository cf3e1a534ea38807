"""Requests for a batcher, and fake stores that record every call and block where a test wants them to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Complete, Verdict
from tests.moved_time import TOO_LONG
from tests.unit.sqlite_calls import ident, request

__all__ = ["LoopSend", "Noted", "ThreadSend", "answer_to", "large", "names", "request", "until"]


def large(word: object, size: int) -> Complete:
    return Complete(ident(word), 1, b"n", result=bytes(size))


def answer_to(one: AnyRequest) -> Answer:
    """Return a different answer for each request, so that one delivered to the wrong caller is noticed."""
    return Answer(Verdict.OK, None, int.from_bytes(one.id[:6], "big"))


def names(requests: Sequence[AnyRequest]) -> list[str]:
    return [one.key if isinstance(one, ClaimRequest) else "" for one in requests]


def until(condition: Callable[[], bool]) -> None:
    """Wait until another thread has made the condition true."""
    deadline = time.monotonic() + TOO_LONG
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.0005)


class Noted:
    """Records what the store was asked, by which thread, and with which timeout."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.requests: list[list[AnyRequest]] = []
        self.senders: list[int] = []
        self.timeouts: list[float] = []
        self.fails: Callable[[Sequence[AnyRequest]], bool] = lambda _: False

    def sizes(self) -> list[int]:
        return [len(call) for call in self.calls]

    def note(self, requests: Sequence[AnyRequest], timeout: float) -> None:
        self.requests.append(list(requests))
        self.calls.append(names(requests))
        self.senders.append(threading.get_ident())
        self.timeouts.append(timeout)

    def answers(self, requests: Sequence[AnyRequest]) -> list[Answer]:
        if self.fails(requests):
            raise StoreUnavailable(f"no answer to {names(requests)}")
        return [answer_to(one) for one in requests]


class ThreadSend(Noted):
    """For threads. The first `holds` calls block inside until `go`."""

    def __init__(self, holds: int = 0) -> None:
        super().__init__()
        self._gates = [threading.Event() for _ in range(holds)]
        self._left = deque(self._gates)
        self.inside = threading.Semaphore(0)

    async def __call__(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        self.note(requests, timeout)
        gate = self._left.popleft() if self._left else None
        self.inside.release()
        if gate is not None:
            assert gate.wait(TOO_LONG), "the test never released the call"
        return self.answers(requests)

    def reached(self) -> None:
        assert self.inside.acquire(timeout=TOO_LONG), "no call came"

    def go(self, number: int = 0) -> None:
        self._gates[number].set()


class LoopSend(Noted):
    """For an event loop. The first `holds` calls block inside until `go`."""

    def __init__(self, holds: int = 0) -> None:
        super().__init__()
        self._gates = [asyncio.Event() for _ in range(holds)]
        self._left = deque(self._gates)
        self.inside = asyncio.Semaphore(0)

    async def __call__(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        self.note(requests, timeout)
        gate = self._left.popleft() if self._left else None
        self.inside.release()
        if gate is not None:
            await asyncio.ensure_future(gate.wait())  # a task of the store's own; the batcher has none
        return self.answers(requests)

    async def reached(self) -> None:
        await asyncio.wait_for(self.inside.acquire(), TOO_LONG)

    def go(self, number: int = 0) -> None:
        self._gates[number].set()
