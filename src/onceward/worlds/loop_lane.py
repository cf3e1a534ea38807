"""Group commit among the tasks of an event loop: what arrives while a call is under way flies with the next.

A flight belongs to no passenger: whoever is cancelled disturbs nobody. A call takes off in the loop's next turn, so
that what was started together goes together. A store whose calls follow each other on the wire may have several
flights in the air, each with fewer aboard: while one is answered, the next is served. There, who finds nobody in the
air takes off at once. Where each call has to be paid for, as a commit is, a second flight is for a crowd: half of it
works while the other half flies, and a key is never aboard of two. A flight that fails is repeated, each request alone,
with the same nonce: one bad item fails alone. Whose time is over leaves the queue; whoever is in the air has to land.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

from onceward.errors import StoreUnavailable
from onceward.model.record import Answer
from onceward.ports import AnyRequest, Send

from .landing import Landing, wake
from .lane import MOST, Queue, Waiting, remaining
from .steps import Steps

SEATS = 32  # of a flight that is not alone: enough to share the cost of a call, few enough to overlap


class Passenger(Landing[list[Answer]]):
    """A request, and the future of its answer. Made in every call."""

    __slots__ = ("deadline", "left", "request", "taken", "taker")

    def __init__(self, request: AnyRequest, loop: AbstractEventLoop, deadline: float) -> None:
        super().__init__(loop)
        self.request = request
        self.deadline = deadline
        self.left = self.taken = False
        self.taker: Waiting | None = None

    def leave(self) -> None:
        self.left = True
        if not self.is_done:
            self.set_exception(StoreUnavailable("other calls of this process kept the store busy for too long"))


class LoopLane:
    """A client may be used by several loops, one after the other or each in its thread: each has a runway."""

    def __init__(self, send: Send, flights: int = 1, crowd: int = 1) -> None:
        self._send = send
        self._flights = flights
        self._crowd = crowd
        self._runways: weakref.WeakKeyDictionary[AbstractEventLoop, Runway] = weakref.WeakKeyDictionary()
        self._latest: tuple[Callable[[], AbstractEventLoop | None], Runway] | None = None

    def __call__(self, request: AnyRequest, timeout: float) -> Passenger:
        loop, latest = asyncio.get_running_loop(), self._latest
        runway = latest[1] if latest is not None and latest[0]() is loop else self._of(loop)
        return runway.board(Passenger(request, loop, time.monotonic() + timeout))

    def _of(self, loop: AbstractEventLoop) -> Runway:
        runway = self._runways.get(loop)
        if runway is None:
            runway = self._runways[loop] = Runway(self._send, self._flights, self._crowd)
        self._latest = weakref.ref(loop), runway
        return runway


class Runway:
    """One flight at a time, or a few."""

    def __init__(self, send: Send, most: int = 1, crowd: int = 1) -> None:
        self._send = send
        self._most = most
        self._crowd = crowd
        self._queue: Queue[Passenger] = Queue()
        self._aboard: list[list[Passenger]] = []
        self._flights = 0
        self._boarding = False  # a flight was called, and has not taken its passengers yet
        self._alarm: TimerHandle | None = None
        self._rings_for = 0.0  # the deadline

    def board(self, one: Passenger) -> Passenger:
        self._queue.add(one)
        if not self._flights and self._most > self._crowd == 1:  # who is alone has nobody to wait for
            self._flights = 1
            self._depart()
        elif self._boarding or not self._has_room():
            self._mind(one)
        else:
            self._take_off()
        return one

    def _has_room(self) -> bool:
        """Whether one more flight may take off for those who wait."""
        return not self._flights or (self._flights < self._most and len(self._queue) >= self._crowd)

    def _take_off(self) -> None:
        self._boarding = True
        self._flights += 1
        asyncio.get_running_loop().call_soon(self._depart)

    def _depart(self) -> None:
        Steps(self._fly).step()

    async def _fly(self, steps: Steps) -> None:
        aboard: list[Passenger] = []
        self._aboard.append(aboard)
        try:
            while self._queue.first() is not None:
                aboard[:] = self._boarded(aboard)
                self._boarding = False
                if self._queue.first() is not None and self._has_room():
                    self._take_off()
                await self._serve(aboard, steps)
                if self._flights > 1 < self._crowd:  # while others fly, those who have just landed may come along
                    break
        except GeneratorExit:  # the loop is gone, and with it everybody aboard
            raise
        except BaseException:  # Ctrl-C, or whoever ends all tasks has ended one of the store's: those aboard go again
            self._queue.put_back([one for one in aboard if not one.is_done])
            self._land(aboard)
            if self._queue.first() is not None:
                self._take_off()
            raise
        self._land(aboard)
        if aboard and self._queue.first() is not None and self._has_room():  # else all wait for keys in the air
            self._take_off()

    def _boarded(self, landed: list[Passenger]) -> list[Passenger]:
        """Who flies next, with the plane that has brought these."""
        if self._most == 1 or self._crowd == 1:
            taken = self._queue.take(MOST if self._most == 1 else SEATS)
        else:
            others = [one for flight in self._aboard if flight is not landed for one in flight]
            crowd = len(self._queue) + len(others) + len(landed)  # those who have landed will soon be back
            seats = min(MOST, max(SEATS, -(-crowd // self._most)))
            taken = self._queue.take(seats, flying={one.request.id for one in others})
        return [one for one in taken if not one.is_done]

    def _land(self, aboard: list[Passenger]) -> None:
        self._flights -= 1
        self._boarding = False
        self._aboard = [others for others in self._aboard if others is not aboard]
        if not self._aboard:
            self._silence()

    async def _serve(self, batch: list[Passenger], steps: Steps) -> None:
        if not batch or await self._carry(batch, steps):
            return
        for one in batch:
            one.taken = False
        for one in batch:
            if not one.is_done:
                one.taken = True
                await self._carry([one], steps)

    async def _carry(self, batch: list[Passenger], steps: Steps) -> bool:
        """One call; False if it failed for several, and has to be repeated for each."""
        landed: list[Passenger] = []
        before = steps.count
        try:
            seconds = min([one.deadline for one in batch]) - time.monotonic()
            answers = await self._send([one.request for one in batch], max(0.0, seconds))
            for one, answer in zip(batch, answers, strict=True):
                if not one.is_done:
                    one.arrive([answer])
                    landed.append(one)
        except Exception as error:  # noqa: BLE001 (raised where it is waited for)
            if len(batch) > 1:
                return False
            if not batch[0].is_done:
                batch[0].set_exception(error)
        finally:
            if landed:  # who was answered without a wait may come back at once, and for ever: the loop has other work
                wake(landed, now=steps.count > before)
        return True

    # ── one alarm for all who wait: most have the same patience, so the first of them sets it ───────────────────

    def _mind(self, one: Passenger) -> None:
        if self._alarm is None or one.deadline < self._rings_for:
            self._silence()
            self._rings_for = one.deadline
            self._alarm = one.get_loop().call_later(remaining(one), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        aboard = (one for flight in self._aboard for one in flight)
        waiting = [one for one in (*aboard, *self._queue) if not (one.taken or one.is_done)]
        for one in waiting:
            if remaining(one):
                self._mind(one)
            else:
                one.leave()

    def _silence(self) -> None:
        """A runway that is not used keeps nothing of its loop."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
