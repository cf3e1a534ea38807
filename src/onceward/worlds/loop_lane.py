"""Group commit among the tasks of an event loop: what arrives while a call is under way flies with the next.

A flight belongs to no passenger: whoever is cancelled disturbs nobody. The first call takes off in the loop's next
turn, so that what was started together goes together. A flight that fails is repeated, each request alone, with the
same nonce: one bad item fails alone.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from asyncio import AbstractEventLoop, Future, Task

from onceward.model.record import Answer
from onceward.ports import AnyRequest, Send

from .lane import Queue, Waiting


class Passenger(Waiting):
    """A request, and the future of its answer."""

    __slots__ = ("_deadline", "future")

    def __init__(self, request: AnyRequest, future: Future[list[Answer]], deadline: float) -> None:
        super().__init__(request)
        self.future = future
        self._deadline = deadline

    def remaining(self) -> float:
        """Seconds until its time is over."""
        return max(0.0, self._deadline - time.monotonic())


class LoopLane:
    """A client may be used by several loops, one after the other or each in its thread: each has a runway."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._runways: weakref.WeakKeyDictionary[AbstractEventLoop, Runway] = weakref.WeakKeyDictionary()

    def __call__(self, request: AnyRequest, timeout: float) -> Future[list[Answer]]:
        loop = asyncio.get_running_loop()
        runway = self._runways.get(loop)
        if runway is None:
            runway = self._runways[loop] = Runway(self._send)
        return runway.board(Passenger(request, loop.create_future(), time.monotonic() + timeout))


class Runway:
    """One flight at a time."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queue: Queue[Passenger] = Queue()
        self._flight: Task[None] | None = None

    def board(self, one: Passenger) -> Future[list[Answer]]:
        self._queue.add(one)
        if self._flight is None:
            self._flight = asyncio.ensure_future(self._fly())
        return one.future

    async def _fly(self) -> None:
        try:
            while self._queue.first() is not None:
                batch = [one for one in self._queue.take() if not one.future.cancelled()]
                if batch and not await self._carry(batch):
                    for one in batch:
                        await self._carry([one])
        finally:
            self._flight = None

    async def _carry(self, batch: list[Passenger]) -> bool:
        """One call; False if it failed for several, and has to be repeated for each."""
        try:
            answers = await self._send([one.request for one in batch], min(one.remaining() for one in batch))
        except Exception as error:  # noqa: BLE001 (raised where it is waited for)
            if len(batch) > 1:
                return False
            if not batch[0].future.done():
                batch[0].future.set_exception(error)
            return True
        for one, answer in zip(batch, answers, strict=True):
            if not one.future.done():
                one.future.set_result([answer])
        return True
