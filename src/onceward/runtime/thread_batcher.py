"""Group commit among threads: one thread, the leader, sends the requests of all waiting threads in one call.

    a lone call            becomes the leader and sends its own request, as if there were no batcher
    meanwhile              other threads queue their requests and wait
    the call returns       the first thread of the queue becomes the leader, and sends all waiting requests
    answers are delivered  each thread wakes the next; the last one wakes the next leader
    the call fails         each of its requests is sent again alone, with the same nonce: one bad item fails alone

The batcher only saves calls; the store keeps order by itself. So if a signal handler raises at a bad moment and the
leader is lost, any thread that notices it becomes the leader. A request that was lost the same way is sent by its own
thread, or queued again.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from contextlib import suppress
from itertools import pairwise

from onceward.errors import OncewardError, StoreBroken, StoreUnavailable
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.requests import Answer, AnyRequest
from onceward.protocol.runtime import Send

from .batch_queue import BatchQueue, Waiting, remaining

FIRST_WAIT = 0.05  # seconds after which a waiting thread checks that there is still a leader
MAX_WAIT = 1.0  # it then checks less and less often
MIN_BATCH = 16  # from this size on, a batch of callers is split between two calls
MAX_WAKE_CHAIN = 0.003  # seconds for which threads with answers may wake one another in turn


class Waiter:
    """A thread that waits for its answer, or for its turn to send."""

    __slots__ = (
        *("_wakeup", "_wait_time", "wake_next", "send_alone", "answer", "ident", "is_leader"),
        *("deadline", "left", "request", "taken", "taker"),
    )

    def __init__(self, request: AnyRequest, deadline: float, ident: int) -> None:
        self.request = request
        self.deadline = deadline
        self.left = self.taken = False
        self.taker: Waiting | None = None
        self.ident = ident
        self.answer: Answer | None = None
        self.is_leader = False  # it sends the next call, or chooses the next leader
        self.wake_next: Waiter | None = None  # the thread that it wakes
        self.send_alone = False  # its batch failed: it sends its own request
        self._wait_time = FIRST_WAIT
        self._wakeup = threading.Lock()
        self._wakeup.acquire()

    def remaining(self) -> float:
        return remaining(self)

    def leave(self) -> None:
        self.left = True

    def wake(self) -> None:
        with suppress(RuntimeError):  # already awake
            self._wakeup.release()

    def has_waited_long(self) -> bool:
        return self._wait_time >= MAX_WAIT

    def wait(self) -> None:
        """Wait for `wake`, for a limited time."""
        if not self._wakeup.acquire(timeout=min(self._wait_time, self.remaining())):
            self._wait_time = min(2 * self._wait_time, MAX_WAIT)  # many threads that check often would slow the leader


class ThreadBatcher:
    """Sends one call to the store at a time. Requests that arrive meanwhile are sent together in the next one."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.reset()
        _batchers.add(self)

    def reset(self) -> None:
        """Start empty, also in a forked child, where none of the waiting threads exists."""
        self._queue: BatchQueue[Waiter] = BatchQueue()
        self._leader_lock = threading.Lock()  # held while there is a leader; `_leader` is its thread
        self._leader = 0
        self._answered_at = 0.0  # when the last answers came

    async def ask(self, request: AnyRequest, timeout: float) -> list[Answer]:
        ident = threading.get_ident()
        if self._leader == ident and self._is_inside_ask(ident):  # a signal handler inside our own call must not wait
            return await self._send([request], timeout)
        is_leader, me = False, None
        try:
            is_leader = self._leader_lock.acquire(blocking=False)
            if is_leader:
                self._leader = ident
                return await self._send([request], timeout)
            me = Waiter(request, time.monotonic() + timeout, ident)
            self._enqueue(me)
            return [await self._answered(me)]
        finally:
            if me is not None:
                self._leave(me)
                is_leader = is_leader or me.is_leader
            if is_leader:
                self._pass_leadership()
            if me is not None and me.wake_next is not None:
                self._wake(me.wake_next)

    def _enqueue(self, me: Waiter) -> None:
        self._queue.add(me)
        me.is_leader = self._leader_lock.acquire(blocking=False)  # the last leader may have left without seeing us

    async def _answered(self, me: Waiter) -> Answer:
        while True:
            if me.answer is None and not me.is_leader:
                me.wait()
            if me.answer is not None:
                return me.answer
            if me.send_alone or self._is_abandoned(me):
                return (await self._send([me.request], me.remaining()))[0]
            if me.is_leader or self._is_leaderless(me):
                await self._lead(me)
            elif not me.taken and me not in self._queue:  # lost by the thread that took it
                self._enqueue(me)
            elif not me.remaining():
                raise StoreUnavailable("other calls of this process kept the store busy for too long")

    async def _lead(self, me: Waiter) -> None:
        """Send all waiting requests, usually including this one."""
        me.is_leader, self._leader = True, me.ident
        batch: list[Waiter] = []
        try:
            batch = self._queue.take(taker=me)
            requests = [one.request for one in batch]
            answers = await self._send(requests, min(one.remaining() for one in batch)) if batch else []
            if len(answers) != len(batch):
                raise StoreBroken(f"{len(batch)} requests got {len(answers)} answers")  # noqa: TRY301 (then each is sent alone)
            self._deliver(me, batch, answers)
        except BaseException as error:
            for one in batch:
                one.send_alone = True
                one.wake()
            if batch == [me] or not isinstance(
                error, OncewardError
            ):  # a signal handler's exception is for this thread only
                raise
            return

    def _deliver(self, me: Waiter, batch: list[Waiter], answers: list[Answer]) -> None:
        """Deliver the answers. Each thread wakes the next one: all at once would compete for the interpreter.

        The last one becomes the leader, so that threads which send again by then are batched. In a large batch it is
        the one in the middle: while the first half waits for its call, the other half works.
        """
        others = [one for one in batch if one is not me]
        for one, after in pairwise(others):
            one.wake_next = after
        if others and 2 * len(self._queue) < len(batch):
            next_leader = others[-1] if len(others) < MIN_BATCH else others[len(others) // 2]
            next_leader.is_leader, self._leader = True, next_leader.ident
            me.is_leader = False
        self._answered_at = time.monotonic()
        for one, answer in zip(batch, answers, strict=True):
            one.answer = answer
        if any(one.left for one in others):  # threads that have gone wake no others
            self._answered_at = 0.0
        if me.is_leader:
            me.is_leader = False
            self._pass_leadership()  # before waking others, so that the next call starts first
        if others:
            self._wake(others[0])

    def _wake(self, one: Waiter | None) -> None:
        """Wake this thread. If the chain takes too long, wake all threads after it, too."""
        late = time.monotonic() - self._answered_at > MAX_WAKE_CHAIN
        while one is not None:
            if late and one.is_leader:
                one.is_leader = False
                self._pass_leadership()
            one.wake()
            one = one.wake_next if late else None

    def _leave(self, me: Waiter) -> None:
        """Withdraw the request. If it is being sent, wait for that: cleanup code must see its effect."""
        me.left = True
        while me.taken and me.answer is None and not (me.send_alone or self._is_abandoned(me)) and me.remaining():
            me.wait()

    def _pass_leadership(self) -> None:
        while True:
            next_leader = self._queue.first()
            if next_leader is not None:
                self._leader = next_leader.ident
                next_leader.is_leader = True
                next_leader.wake()
                return
            self._leader = 0
            try:  # noqa: SIM105 (`suppress` is slower)
                self._leader_lock.release()
            except RuntimeError:  # already released
                pass
            if self._queue.first() is None or not self._leader_lock.acquire(blocking=False):
                return  # otherwise a request was queued between the check and the release

    def _is_abandoned(self, me: Waiter) -> bool:
        """Return whether the thread that took the request was interrupted before sending it."""
        return me.taken and me.taker is not None and me.taker.left and me.answer is None

    def _is_leaderless(self, me: Waiter) -> bool:
        """Return whether the leader is lost: it has left `ask`, or it is this very thread, in an outer call.

        Only the first thread of the queue checks, and threads that have waited long: the check takes time if there
        are many threads.
        """
        holder = self._leader
        if not self._leader_lock.locked() or holder == me.ident:
            return self._leader_lock.locked()
        return (me.has_waited_long() or self._queue.first() is me) and not self._is_inside_ask(holder)

    def _is_inside_ask(self, ident: int) -> bool:
        frame = sys._current_frames().get(ident)  # noqa: SLF001 (documented, and rarely called)
        while frame is not None:
            if frame.f_code in _ASK_CODE:
                return True
            frame = frame.f_back
        return False


_ASK_CODE = frozenset({ThreadBatcher.ask.__code__})
_batchers: weakref.WeakSet[ThreadBatcher] = weakref.WeakSet()


def _reset_all() -> None:
    for batcher in tuple(_batchers):
        batcher.reset()


call_in_forked_child(_reset_all)
