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
import math
import os
import weakref
from asyncio import AbstractEventLoop, Future, TimerHandle, get_running_loop
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from threading import get_ident
from time import monotonic
from typing import Any

from onceward.errors import StoreBroken, WrongRuntime
from onceward.protocol.requests import AnyRequest, Complete
from onceward.protocol.runtime import Send

from .batch_queue import MOST, MOST_BYTES, OVERHEAD, remaining, size_of
from .callback_steps import CallbackTask, Count
from .pending_request import PendingRequest, hand_over

SEATS = 32  # at least, of a flight that has to be paid for: enough to share the cost of a call
FEW = 8  # the same of one that only follows the others on the wire
AMPLE = MOST_BYTES - MOST * OVERHEAD  # bytes of results that go together whatever else they go with
NOTHING: AbstractSet[bytes] = frozenset()


def here() -> AbstractEventLoop:
    """The loop that runs here."""
    try:
        return get_running_loop()
    except RuntimeError:
        raise WrongRuntime(
            "AsyncOnce was used outside of an event loop", hint="await it in a coroutine, or use Once"
        ) from None


class AsyncBatcher:
    """A client may be used by several loops, one after the other or each in its thread: each has a runway."""

    def __init__(self, send: Send, max_in_flight: int = 1, min_batch: int = 1) -> None:
        self._send = send
        self._flights = max_in_flight
        self._crowd = min_batch
        self.reset()
        _lanes.add(self)

    def reset(self) -> None:
        """In the child of a fork no loop of its parent runs."""
        self._runways: weakref.WeakKeyDictionary[AbstractEventLoop, LoopQueue] = weakref.WeakKeyDictionary()
        self._latest: tuple[Callable[[], Any], LoopQueue] | None = None

    def ask(self, request: AnyRequest, timeout: float) -> PendingRequest:
        latest = self._latest
        loop: Any = None if latest is None else latest[0]()
        if loop is None or loop._thread_id != get_ident():  # noqa: SLF001 (see `_of`)
            loop = here()
            runway = self._of(loop)
        else:
            runway = latest[1]  # type: ignore[index]  # it is the one of that loop
        one = PendingRequest(request, monotonic() + timeout, Future(loop=loop))
        try:
            runway.waiting.append(one)
            if len(runway.aboard) < runway.most and not runway.boarding:
                runway.call(one)
            elif one.deadline < runway.rings_for:
                runway.mind(one)
            return one
        except BaseException:  # a signal: nobody waits for it, and what was not sent yet is not to be sent any more
            one.stays = False
            one.future.cancel()
            raise

    def _of(self, loop: AbstractEventLoop) -> LoopQueue:
        """Before Python 3.12, asyncio asks the kernel for our process whenever it is asked for the loop that runs.

        A loop of its own knows in which thread it runs, as long as it does.
        """
        runway = self._runways.get(loop)
        if runway is None:
            runway = self._runways[loop] = LoopQueue(self._send, self._flights, self._crowd)
        self._latest = (weakref.ref(loop), runway) if hasattr(loop, "_thread_id") else None
        return runway


_lanes: weakref.WeakSet[AsyncBatcher] = weakref.WeakSet()


def _reset() -> None:
    for batcher in tuple(_lanes):
        batcher.reset()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_reset)


class LoopQueue:
    """One flight at a time, or a few."""

    def __init__(self, send: Send, most: int = 1, min_batch: int = 1) -> None:
        self._send = send
        self.most = most
        self._crowd = min_batch
        self._is_lonely = most > min_batch == 1  # whoever finds nobody in the air has nobody to wait for
        self.waiting: list[PendingRequest] = []
        self.aboard: list[list[PendingRequest]] = []
        self._grounded: set[PendingRequest] = set()  # their flight failed, and each waits for one of its own
        self.boarding = False  # a flight was called, and has not begun yet
        self._alarm: TimerHandle | None = None
        self.rings_for = math.inf  # the deadline; nobody's, if there is no alarm

    def call(self, one: PendingRequest) -> None:
        """Somebody has come, and there may be one more flight."""
        if self._is_lonely and not self.aboard:
            self._depart()
            return
        if self._has_room():
            self._take_off()
        if one.deadline < self.rings_for:
            self.mind(one)

    def _has_room(self) -> bool:
        """Whether one more flight is to be called for those who wait."""
        if self.boarding or not self.aboard:
            return not self.boarding
        return len(self.aboard) < self.most and len(self.waiting) >= self._crowd

    def _take_off(self) -> None:
        asyncio.get_running_loop().call_soon(self._depart)
        self.boarding = True  # not before: a signal in between, and all would wait for a flight that nobody called

    def _depart(self) -> None:
        self.boarding = False
        try:
            CallbackTask(self._fly).step()
        except BaseException:
            if self.waiting and not self.aboard and not self.boarding:  # a signal struck before it had begun
                self._take_off()
            raise

    async def _fly(self, steps: Count) -> None:
        aboard: list[PendingRequest] = []
        try:
            self.aboard.append(aboard)
            while self.waiting:
                until = self._fill(aboard)
                if self.waiting and self._has_room():
                    self._take_off()
                if aboard and not await self._carry(aboard, until, steps):
                    await self._carry_each(aboard, steps)
                # While others fly, those who have just landed may come along.
                if self._crowd > 1 and len(self.aboard) + self.boarding > 1:
                    break
            self._land(aboard)
            if aboard and self.waiting and self._has_room():  # else all wait for keys in the air
                self._take_off()
        except GeneratorExit:  # struck where it was to go on; or the loop is gone, and with it all aboard
            with suppress(RuntimeError):
                if aboard:
                    aboard[0].future.get_loop().call_soon_threadsafe(self._crash, aboard)
            raise
        except BaseException:  # Ctrl-C, or whoever ends all tasks has ended one of the store's
            self._crash(aboard)
            raise

    def _crash(self, aboard: list[PendingRequest]) -> None:
        """Those aboard go again, unless they have an answer."""
        self._grounded.difference_update(aboard)
        self.waiting[:0] = [one for one in aboard if not (one.is_done() or one in self.waiting)]
        self._land(aboard)
        if self.waiting and not self.boarding:
            self._take_off()

    def _land(self, aboard: list[PendingRequest]) -> None:
        self.aboard = [others for others in self.aboard if others is not aboard]
        if not (self.aboard or self.waiting):
            self._silence()

    # ── who goes aboard ─────────────────────────────────────────────────────────────────────────────────────────

    def _fill(self, aboard: list[PendingRequest]) -> float:
        """Who flies next takes the seats of those who have landed; until when the call may take.

        Nobody leaves the queue before being aboard: whatever a signal interrupts, nobody is lost.
        """
        seats, flying = self._seats(aboard)
        first = self.waiting[:seats]
        until = min([one.deadline for one in first])
        requests = [one.request for one in first]
        ids = {one.id for one in requests}
        if (
            len(ids) == len(first)
            and until > monotonic()
            and True not in [one.future.done() for one in first]
            and ids.isdisjoint(flying)
            and sum([len(one.result or b"") for one in requests if type(one) is Complete]) <= AMPLE
        ):
            aboard[:] = first
            del self.waiting[: len(first)]
            return until
        chosen = self._chosen(seats, flying)
        aboard[:] = chosen
        self.waiting = [one for one in self.waiting if not (one.is_done() or one in chosen)]
        return min([one.deadline for one in chosen], default=until)

    def _seats(self, landed: list[PendingRequest]) -> tuple[int, AbstractSet[bytes]]:
        """How many may fly with the plane that has brought these; and the keys in the air, which are to wait."""
        if self.most == 1:
            return MOST, NOTHING
        if (
            self._crowd == 1
        ):  # as many flights as there may be, each with its share: one is served while we see to another
            everybody = len(self.waiting) + sum(map(len, self.aboard)) - len(landed)
            return min(MOST, max(FEW, -(-everybody // self.most))), NOTHING
        others = [one for flight in self.aboard if flight is not landed for one in flight]
        min_batch = len(self.waiting) + len(others) + len(landed)  # those who have landed will soon be back
        return min(MOST, max(SEATS, -(-min_batch // self.most))), {one.request.id for one in others}

    def _chosen(self, seats: int, flying: AbstractSet[bytes]) -> list[PendingRequest]:
        """One of a key, not too many bytes, and nobody who is late. First come, first served."""
        chosen: list[PendingRequest] = []
        ids, size, now = set(flying), 0, monotonic()
        for one in self.waiting:
            if one.deadline <= now:
                one.leave()
            if one.is_done() or one.request.id in ids:
                continue
            size += size_of(one.request)
            if chosen and (size > MOST_BYTES or len(chosen) == seats):
                break
            ids.add(one.request.id)
            chosen.append(one)
        return chosen

    # ── one call ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _carry_each(self, batch: list[PendingRequest], steps: Count) -> None:
        """Their flight has failed: each gets one of its own."""
        self._grounded.update(batch)
        self.mind(min(batch, key=lambda one: one.deadline))
        for one in batch:
            self._grounded.discard(one)
            if not one.is_done():
                await self._carry([one], one.deadline, steps)

    async def _carry(self, batch: list[PendingRequest], until: float, steps: Count) -> bool:
        """One call; False if it failed for several, and has to be repeated for each."""
        before = steps.steps
        try:
            answers = await self._send([one.request for one in batch], max(0.0, until - monotonic()))
            if len(answers) != len(batch):
                raise StoreBroken(f"{len(batch)} requests, but {len(answers)} answers")  # noqa: TRY301 (as any other)
        except Exception as error:  # noqa: BLE001 (raised where it is waited for)
            if len(batch) > 1:
                return False
            batch[0].fail(error)
            return True
        # Who was answered without a wait may come back at once, and for ever: the loop has other work.
        hand_over(batch, answers, now=steps.steps > before)
        return True

    # ── one alarm for all who wait: most have the same retry_until, so the first of them sets it ───────────────────

    def mind(self, one: PendingRequest) -> None:
        if one.deadline < self.rings_for:
            self._silence()
            self.rings_for = one.deadline
            self._alarm = asyncio.get_running_loop().call_later(remaining(one), self._ring)

    def _ring(self) -> None:
        self._alarm, self.rings_for = None, math.inf
        self.boarding = False  # if a signal struck just as a flight was to begin, nobody else will call one
        for one in [one for one in (*self._grounded, *self.waiting) if not one.is_done()]:
            if remaining(one):
                self.mind(one)
            else:
                one.leave()
        if self.waiting and self._has_room():
            self._take_off()

    def _silence(self) -> None:
        """A runway that is not used keeps nothing of its loop."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm, self.rings_for = None, math.inf
