"""Group commit among threads: whoever finds the lane free sends itself, and then wakes the next one to send.

    a lone call      sends itself, as if there were no lane
    meanwhile        others queue up and sleep
    it returns       the first of the queue wakes, sends all that wait in one call, and tells them
    told             one wakes the other; the last of them wakes the first of those who are back by then
    that call fails  each of its requests is sent again alone, with the same nonce: one bad item fails alone

The lane only saves calls; the store keeps order by itself. So a baton that was lost because a signal raised at a bad
moment is taken up again by whoever finds that its holder is not in here any more. A request that was lost so is sent by
its own thread, or queues up again.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from itertools import pairwise

from onceward.errors import OncewardError, StoreBroken, StoreUnavailable
from onceward.protocol.requests import Answer, AnyRequest
from onceward.protocol.runtime import Send

from .batch_queue import BatchQueue, Waiting, remaining

NAP = 0.05  # seconds after which a sleeper looks whether anybody is sending at all
LONGEST_NAP = 1.0  # and then less and less often
MIN_BATCH = 16  # of those who wait for one call: enough for two
LONGEST_ROUND = 0.003  # seconds for which those who have their answers may wake one after the other


class Waiter:
    """A thread that waits for its answer, or for its turn to send."""

    __slots__ = (
        *("_bell", "_nap", "after", "alone", "answer", "ident", "leads"),
        *("deadline", "left", "request", "taken", "taker"),
    )

    def __init__(self, request: AnyRequest, deadline: float, ident: int) -> None:
        self.request = request
        self.deadline = deadline
        self.left = self.taken = False
        self.taker: Waiting | None = None
        self.ident = ident
        self.answer: Answer | None = None
        self.leads = False  # it is to send the next call, or to say who does
        self.after: Waiter | None = None  # who is to wake after it
        self.alone = False  # the call that it was part of failed: it is to send itself
        self._nap = NAP
        self._bell = threading.Lock()
        self._bell.acquire()

    def remaining(self) -> float:
        return remaining(self)

    def leave(self) -> None:
        self.left = True

    def wake(self) -> None:
        with suppress(RuntimeError):  # it was woken already
            self._bell.release()

    def is_weary(self) -> bool:
        return self._nap >= LONGEST_NAP

    def nap(self) -> None:
        """Until somebody wakes it; not for long."""
        if not self._bell.acquire(timeout=min(self._nap, self.remaining())):
            self._nap = min(2 * self._nap, LONGEST_NAP)  # a crowd that looks too often keeps the one that sends from it


class ThreadBatcher:
    """One call to the store at a time; the rest waits and goes together."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.reset()
        _lanes.add(self)

    def reset(self) -> None:
        """Also in the child of a fork, where none of the waiting threads exists."""
        self._queue: BatchQueue[Waiter] = BatchQueue()
        self._baton = threading.Lock()  # held by whoever sends, in the name of `_holder`
        self._holder = 0
        self._told_at = 0.0  # when the last answers came

    async def ask(self, request: AnyRequest, timeout: float) -> list[Answer]:
        ident = threading.get_ident()
        if self._holder == ident and self._is_in_here(ident):  # a signal handler inside of our own call: no waiting
            return await self._send([request], timeout)
        leads, me = False, None
        try:
            leads = self._baton.acquire(blocking=False)
            if leads:
                self._holder = ident
                return await self._send([request], timeout)
            me = Waiter(request, time.monotonic() + timeout, ident)
            self._line_up(me)
            return [await self._answered(me)]
        finally:
            if me is not None:
                self._leave(me)
                leads = leads or me.leads
            if leads:
                self._hand_on()
            if me is not None and me.after is not None:
                self._wake(me.after)

    def _line_up(self, me: Waiter) -> None:
        self._queue.add(me)
        me.leads = self._baton.acquire(blocking=False)  # its holder may have left without having seen us

    async def _answered(self, me: Waiter) -> Answer:
        while True:
            if me.answer is None and not me.leads:
                me.nap()
            if me.answer is not None:
                return me.answer
            if me.alone or self._is_abandoned(me):
                return (await self._send([me.request], me.remaining()))[0]
            if me.leads or self._is_lost(me):
                await self._lead(me)
            elif not me.taken and me not in self._queue:  # dropped by whoever was to take it
                self._line_up(me)
            elif not me.remaining():
                raise StoreUnavailable("other calls of this process kept the store busy for too long")

    async def _lead(self, me: Waiter) -> None:
        """Send all that wait, most often this one among them."""
        me.leads, self._holder = True, me.ident
        batch: list[Waiter] = []
        try:
            batch = self._queue.take(taker=me)
            requests = [one.request for one in batch]
            answers = await self._send(requests, min(one.remaining() for one in batch)) if batch else []
            if len(answers) != len(batch):
                raise StoreBroken(f"{len(batch)} requests got {len(answers)} answers")  # noqa: TRY301 (asked one by one)
            self._tell(me, batch, answers)
        except BaseException as error:
            for one in batch:
                one.alone = True
                one.wake()
            if batch == [me] or not isinstance(error, OncewardError):  # a signal's is for this thread alone
                raise
            return

    def _tell(self, me: Waiter, batch: list[Waiter], answers: list[Answer]) -> None:
        """Each wakes the next one: all at once would fight for the interpreter.

        The last one hands the baton on, so that those who are back by then go together. Of a crowd it is the one in the
        middle: while the first half is under way, the other half works.
        """
        others = [one for one in batch if one is not me]
        for one, after in pairwise(others):
            one.after = after
        if others and 2 * len(self._queue) < len(batch):
            heir = others[-1] if len(others) < MIN_BATCH else others[len(others) // 2]
            heir.leads, self._holder = True, heir.ident
            me.leads = False
        self._told_at = time.monotonic()
        for one, answer in zip(batch, answers, strict=True):
            one.answer = answer
        if any(one.left for one in others):  # who has gone wakes nobody, and hands nothing on
            self._told_at = 0.0
        if me.leads:
            me.leads = False
            self._hand_on()  # first the next call: those who wake up now would all be before it
        if others:
            self._wake(others[0])

    def _wake(self, one: Waiter | None) -> None:
        """Whose turn it is; and all after it, if that takes long: others have work of their own to do."""
        late = time.monotonic() - self._told_at > LONGEST_ROUND
        while one is not None:
            if late and one.leads:
                one.leads = False
                self._hand_on()
            one.wake()
            one = one.after if late else None

    def _leave(self, me: Waiter) -> None:
        """Not to be sent any more. If it is under way, wait for that: whoever cleans up has to see what came of it."""
        me.left = True
        while me.taken and me.answer is None and not (me.alone or self._is_abandoned(me)) and me.remaining():
            me.nap()

    def _hand_on(self) -> None:
        while True:
            heir = self._queue.first()
            if heir is not None:
                self._holder = heir.ident
                heir.leads = True
                heir.wake()
                return
            self._holder = 0
            try:  # noqa: SIM105 (a context of its own for everybody who comes by here would be felt)
                self._baton.release()
            except RuntimeError:  # it was handed on already
                pass
            if self._queue.first() is None or not self._baton.acquire(blocking=False):
                return  # else somebody came between the look and the release

    def _is_abandoned(self, me: Waiter) -> bool:
        """Whether a signal struck whoever took it, before it was sent, and nobody will tell."""
        return me.taken and me.taker is not None and me.taker.left and me.answer is None

    def _is_lost(self, me: Waiter) -> bool:
        """Whether nobody will hand the baton on: its holder has left, or is this very thread, one call further out.

        The first of the queue looks for all, and who has waited for long: to look at every thread takes time where
        there are many.
        """
        holder = self._holder
        if not self._baton.locked() or holder == me.ident:
            return self._baton.locked()
        return (me.is_weary() or self._queue.first() is me) and not self._is_in_here(holder)

    def _is_in_here(self, ident: int) -> bool:
        frame = sys._current_frames().get(ident)  # noqa: SLF001 (documented, and seldom asked)
        while frame is not None:
            if frame.f_code in _OURS:
                return True
            frame = frame.f_back
        return False


_OURS = frozenset({ThreadBatcher.ask.__code__})
_lanes: weakref.WeakSet[ThreadBatcher] = weakref.WeakSet()


def _reset_all() -> None:
    for batcher in tuple(_lanes):
        batcher.reset()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_reset_all)
