"""Group commit among the tasks of an event loop: what arrives while a call is under way flies with the next.

A flight belongs to no passenger: whoever is cancelled disturbs nobody. The first call takes off in the loop's next
turn, so that what was started together goes together. A flight that fails is repeated, each request alone, with the
same nonce: one bad item fails alone. Whose time is over leaves the queue; whoever is in the air has to land.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from asyncio import AbstractEventLoop, Future, Task, TimerHandle

from onceward.errors import StoreUnavailable
from onceward.model.record import Answer
from onceward.ports import AnyRequest, Send

from .lane import Queue, Waiting


class Passenger(Waiting):
    """A request, and the future of its answer."""

    __slots__ = ("future",)

    def __init__(self, request: AnyRequest, future: Future[list[Answer]], deadline: float) -> None:
        super().__init__(request, deadline)
        self.future = future

    def leave(self) -> None:
        super().leave()
        if not self.future.done():
            self.future.set_exception(StoreUnavailable("other calls of this process kept the store busy for too long"))


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
        self._aboard: list[Passenger] = []
        self._flight: Task[None] | None = None
        self._alarm: TimerHandle | None = None

    def board(self, one: Passenger) -> Future[list[Answer]]:
        self._queue.add(one)
        if self._flight is None:
            self._take_off()
        else:
            self._mind(one)
        return one.future

    def _take_off(self) -> None:
        flight = asyncio.ensure_future(self._fly())
        self._flight = None if flight.done() else flight  # an eager one may be over already

    async def _fly(self) -> None:
        try:
            while self._queue.first() is not None:
                self._aboard = [one for one in self._queue.take() if not one.future.done()]
                await self._serve(self._aboard)
        except asyncio.CancelledError:  # by whoever ends all tasks, and waits until they have cleaned up
            self._queue.put_back([one for one in self._aboard if not one.future.done()])
            self._aboard = []
            if self._queue.first() is not None:
                self._take_off()
            raise
        self._aboard = []
        self._flight = None
        self._silence()

    async def _serve(self, batch: list[Passenger]) -> None:
        if not batch or await self._carry(batch):
            return
        for one in batch:
            one.taken = False
        for one in batch:
            if not one.future.done():
                one.taken = True
                await self._carry([one])

    async def _carry(self, batch: list[Passenger]) -> bool:
        """One call; False if it failed for several, and has to be repeated for each."""
        try:
            answers = await self._send([one.request for one in batch], min(one.remaining() for one in batch))
            for one, answer in zip(batch, answers, strict=True):
                if not one.future.done():
                    one.future.set_result([answer])
        except Exception as error:  # noqa: BLE001 (raised where it is waited for)
            if len(batch) > 1:
                return False
            if not batch[0].future.done():
                batch[0].future.set_exception(error)
        return True

    # ── one alarm for all who wait: most have the same patience, so the first of them sets it ───────────────────

    def _mind(self, one: Passenger) -> None:
        loop = one.future.get_loop()
        at = loop.time() + one.remaining()
        if self._alarm is None or at < self._alarm.when():
            self._silence()
            self._alarm = loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        waiting = [one for one in (*self._aboard, *self._queue) if not (one.taken or one.future.done())]
        for one in waiting:
            if one.remaining():
                self._mind(one)
            else:
                one.leave()

    def _silence(self) -> None:
        """A runway that is not used keeps nothing of its loop."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
