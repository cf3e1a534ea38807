"""Group commit among threads: whoever finds the lane free sends itself, and then wakes the next one to send.

    a lone call      sends itself, as if there were no lane
    meanwhile        others queue up and sleep
    it returns       the first of the queue wakes, sends all that wait in one call, and tells them
    that call fails  each of its requests is sent again alone, with the same nonce: one bad item fails alone

Nobody sends for others twice in a row, so nobody works for others while its own caller waits.
"""

from __future__ import annotations

import os
import threading
import time
import weakref

from onceward.errors import StoreUnavailable
from onceward.model.record import Answer
from onceward.ports import AnyRequest, Send

from .lane import Queue


class Sleeper:
    """A thread that waits for its answer, or for its turn to send."""

    __slots__ = ("_bell", "_deadline", "alone", "answer", "leads", "request")

    def __init__(self, request: AnyRequest, deadline: float) -> None:
        self.request = request
        self._deadline = deadline
        self.answer: Answer | None = None
        self.leads = False  # it is to send the next call
        self.alone = False  # the call that it was part of failed: it is to send itself
        self._bell = threading.Lock()
        self._bell.acquire()

    def wake(self) -> None:
        self._bell.release()

    def sleep(self) -> None:
        """Until somebody wakes it, or its time is over."""
        self._bell.acquire(timeout=self.left())

    def left(self) -> float:
        """Seconds until its time is over."""
        return max(0.0, self._deadline - time.monotonic())


class ThreadLane:
    """One call to the store at a time; the rest waits and goes together.

    Whoever sends holds the baton (`_busy`). A signal may raise between any two steps, so the baton is noted in the
    same step that takes it, and is handed on in a `finally`.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.reset()
        _lanes.add(self)

    def reset(self) -> None:
        """Also in the child of a fork, where none of the waiting threads exists."""
        self._lock = threading.Lock()
        self._queue: Queue[Sleeper] = Queue()
        self._busy = False
        self._inside: set[int] = set()  # threads that are in here

    async def __call__(self, request: AnyRequest, timeout: float) -> list[Answer]:
        ident = threading.get_ident()
        if ident in self._inside:  # a signal handler or __del__: it must not wait for its own thread
            return await self._send([request], timeout)
        leads, me = False, None
        try:
            self._inside.add(ident)
            with self._lock:
                if not self._busy:
                    self._busy = leads = True
                else:
                    me = Sleeper(request, time.monotonic() + timeout)
                    self._queue.add(me)
            if me is None:
                return await self._send([request], timeout)
            return await self._answered(me)
        finally:
            if leads or (me is not None and not self._left(me)):
                self._hand_on()
            self._inside.discard(ident)

    async def _answered(self, me: Sleeper) -> list[Answer]:
        me.sleep()
        if me.answer is not None:
            return [me.answer]
        if me.leads:
            return await self._lead(me)
        if me.alone:
            return await self._send([me.request], me.left())
        raise StoreUnavailable("other calls of this process kept the store busy for too long")

    async def _lead(self, me: Sleeper) -> list[Answer]:
        """Send all that wait, the first of which is this one."""
        with self._lock:
            batch = self._queue.take()
        try:
            answers = await self._send([one.request for one in batch], me.left())
        except BaseException as error:
            for one in batch[1:]:
                one.alone = True
                one.wake()
            if len(batch) == 1 or not isinstance(error, Exception):
                raise
            return await self._send([me.request], me.left())
        for one, answer in zip(batch[1:], answers[1:], strict=True):
            one.answer = answer
            one.wake()
        return answers[:1]

    def _left(self, me: Sleeper) -> bool:
        """Out of the queue, if it is still there; False if it has the baton, and must hand it on."""
        with self._lock:
            if me.answer is None:
                self._queue.remove(me)
            return not me.leads

    def _hand_on(self) -> None:
        with self._lock:
            if self._queue:
                heir = self._queue.first()
                heir.leads = True
                heir.wake()
            else:
                self._busy = False


_lanes: weakref.WeakSet[ThreadLane] = weakref.WeakSet()


def _reset_all() -> None:
    for lane in tuple(_lanes):
        lane.reset()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_reset_all)
