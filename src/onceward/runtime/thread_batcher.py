"""Group commit among threads: one thread, the leader, sends the requests of all waiting threads in one call.

    a lone call            leads: it sends its own request, as if there were no batcher
    meanwhile              other threads, the followers, queue their requests and wait
    the call returns       the first thread of the queue wakes and sends all waiting requests
    its followers          wake one after the other: if all woke at once, they would compete for the GIL
    the last one wakes     the first thread of the queue leads: by then, most answered threads have queued again
    the call fails         each of its requests is sent again alone, with the same nonce: one bad item fails alone
    the leader leaves      (a signal handler raised): its followers send their requests alone

The batcher only saves calls: the store itself ensures the order. So a follower that finds no leader becomes
the leader, and a request may be sent twice.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from itertools import pairwise

from onceward.errors import OncewardError, StoreBroken, StoreUnavailable
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.requests import Answer, AnyRequest
from onceward.protocol.runtime import Send

from .next_batch import BUSY_TOO_LONG, next_batch, remaining

CHECK_INTERVAL = 0.25  # seconds after which a follower checks for a leader: an interrupted leader wakes no one
MAX_WAKING = 0.01  # seconds for which followers wake one after the other; then all of them wake


class Follower:
    """A thread that waits for its answer, or for its turn to lead."""

    __slots__ = ("_wakeup", "alone", "answer", "deadline", "has_left", "request", "wakes")

    def __init__(self, request: AnyRequest, deadline: float) -> None:
        self.request = request
        self.deadline = deadline
        self.answer: Answer | None = None
        self.wakes: Follower | None = None  # the follower that it wakes: the next one of its batch
        self.alone = False  # its batch failed: it sends its own request
        self.has_left = False
        self._wakeup = threading.Lock()
        self._wakeup.acquire()

    def is_done(self) -> bool:
        return self.has_left or self.answer is not None

    def leave(self) -> None:
        self.has_left = True
        self.wake()

    def wake(self) -> None:
        try:  # noqa: SIM105 (`suppress` is slower)
            self._wakeup.release()
        except RuntimeError:  # already awake
            pass

    def wait(self) -> None:
        """Wait for `wake`, for a limited time."""
        self._wakeup.acquire(timeout=min(CHECK_INTERVAL, remaining(self)))


class ThreadBatcher:
    """Sends one call to the store at a time. Requests that arrive meanwhile are sent together in the next one."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.reset()
        _batchers.add(self)

    def reset(self) -> None:
        """Start empty, also in a forked child, where none of the waiting threads exists."""
        self._waiting: deque[Follower] = deque()
        self._leading = threading.RLock()  # held by the leader, by `with` only: so it is released after any interrupt
        self._leader = 0  # its thread, so that others follow instead of waiting for the lock
        self._waking_until = 0.0  # until then, followers of the last call wake and no call starts; 0: all are awake

    async def ask(self, request: AnyRequest, timeout: float) -> list[Answer]:
        ident = threading.get_ident()
        if self._leader == ident:  # a signal handler inside our own call must not wait for it
            return await self._send([request], timeout)
        if self._leader or self._waiting or self._waking_until:
            return [await self._follow(Follower(request, time.monotonic() + timeout))]
        with self._leading:
            try:
                self._leader = ident
                return await self._send([request], timeout)
            finally:
                self._leader = 0
                if self._waiting:
                    self._wake_first()

    def waiting(self) -> int:
        """Return how many requests wait for the next call."""
        return len(self._waiting)

    def is_sending(self) -> bool:
        """Return whether a call is in flight."""
        return self._leader != 0

    async def _follow(self, me: Follower) -> Answer:
        self._waiting.append(me)  # before looking for a leader: one that has just finished wakes us
        try:
            while True:
                if not self._leader and time.monotonic() >= self._waking_until:
                    await self._lead(me)
                if me.answer is None and not me.alone:
                    me.wait()
                if me.answer is not None:
                    return me.answer
                if me.alone:
                    return (await self._send([me.request], remaining(me)))[0]
                if not remaining(me):
                    raise StoreUnavailable(BUSY_TOO_LONG)
        finally:
            me.has_left = True
            if me.answer is not None:
                self._wake_next(me)
            elif not self._leader:
                self._wake_first()

    async def _lead(self, me: Follower) -> None:
        """Send all waiting requests, including this one."""
        batch: list[Follower] = []
        try:
            with self._leading:
                if me.is_done() or me.alone:  # another thread was the leader until now
                    return
                try:
                    self._leader = threading.get_ident()
                    batch = self._take(me)
                    await self._send_batch(batch)
                finally:
                    self._leader = 0
        except BaseException as error:
            self._wake_first()  # of the queue: those of the batch may be busy for long, each with its own request
            for one in batch:
                one.alone = True
                one.wake()
            if batch == [me] or not isinstance(error, OncewardError):  # an interrupt is for this thread only
                raise

    def _take(self, me: Follower) -> list[Follower]:
        waiting = [me]
        while self._waiting:  # only the leader takes
            one = self._waiting.popleft()
            if one is not me:
                waiting.append(one)
        batch, later = next_batch(waiting)
        self._waiting.extendleft(reversed(later))
        return batch

    async def _send_batch(self, batch: list[Follower]) -> None:
        if not batch:  # all of them are past their deadline
            return
        earliest = min([one.deadline for one in batch])
        answers = await self._send([one.request for one in batch], max(0.0, earliest - time.monotonic()))
        if len(answers) != len(batch):
            raise StoreBroken(f"{len(batch)} requests got {len(answers)} answers")
        self._waking_until = time.monotonic() + MAX_WAKING
        for one, following in pairwise(batch):
            one.wakes = following
        for one, answer in zip(batch, answers, strict=True):
            one.answer = answer
        batch[0].wake()  # usually the leader itself

    def _wake_next(self, me: Follower) -> None:
        """Wake the next follower of the batch. The last one wakes the first thread of the queue, which then leads."""
        one = me.wakes
        while one is not None:
            one.wake()
            if not one.has_left and time.monotonic() < self._waking_until:
                return  # it wakes the next one
            one = one.wakes
        self._waking_until = 0.0
        if not self._leader:
            self._wake_first()

    def _wake_first(self) -> None:
        """Wake the first follower, which then leads."""
        for one in tuple(self._waiting):
            if not one.is_done():
                one.wake()
                return


_batchers: weakref.WeakSet[ThreadBatcher] = weakref.WeakSet()


def _reset_all() -> None:
    for batcher in tuple(_batchers):
        batcher.reset()


call_in_forked_child(_reset_all)
