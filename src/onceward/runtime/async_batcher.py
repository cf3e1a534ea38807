"""Group commit among the tasks of an event loop: requests that arrive during a call are sent together in the next one.

- A batch belongs to no single caller. Cancelling one caller does not affect the others in the batch.
- A sender is a task that sends batches until no request waits. It starts in the loop's next iteration, so that
  requests which were started together are sent together.
- A further sender starts only for `MIN_BATCH` requests: half of the callers work while the other half wait. A key is
  never in two batches at the same time.
- If a batch fails, each request is repeated alone with the same nonce: one bad item fails alone.
- A request whose deadline passes leaves the queue. One that was already sent waits for its answer.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from asyncio import AbstractEventLoop, Task, TimerHandle
from contextvars import Context
from time import monotonic

from onceward.errors import StoreBroken, WrongRuntime
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.requests import AnyRequest
from onceward.protocol.runtime import Send

from .next_batch import MAX_BATCH, next_batch, remaining
from .pending_request import PendingRequest

MIN_BATCH = 32
"""How many waiting requests justify another call while one is in flight. Fewer would waste the server's time."""


def running_loop() -> AbstractEventLoop:
    """Return the running event loop, or raise WrongRuntime."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise WrongRuntime(
            "AsyncOnce was used outside of an event loop", hint="await it in a coroutine, or use the sync client Once"
        ) from None


class AsyncBatcher:
    """Batches requests, with one queue per event loop: several loops may use a client, each in its own thread."""

    def __init__(self, send: Send, max_in_flight: int = 1) -> None:
        self._send = send
        self._max_in_flight = max_in_flight
        self.reset()
        _batchers.add(self)

    def reset(self) -> None:
        """Drop all queues, also in a forked child: the parent's loops do not run there."""
        self._queues: weakref.WeakKeyDictionary[AbstractEventLoop, LoopQueue] = weakref.WeakKeyDictionary()

    def ask(self, request: AnyRequest, timeout: float) -> PendingRequest:
        loop = running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            queue = self._queues[loop] = LoopQueue(self._send, self._max_in_flight)
        one = PendingRequest(request, monotonic() + timeout, loop.create_future())
        queue.add(one)
        return one

    def waiting(self) -> int:
        """Return how many requests wait for the next call, on all event loops."""
        return sum(queue.waiting() for queue in tuple(self._queues.values()))


_batchers: weakref.WeakSet[AsyncBatcher] = weakref.WeakSet()


def _reset_all() -> None:
    for batcher in tuple(_batchers):
        batcher.reset()


call_in_forked_child(_reset_all)


class LoopQueue:
    """The waiting requests of one event loop, and the tasks that send them."""

    def __init__(self, send: Send, max_in_flight: int) -> None:
        self._send = send
        self._max_in_flight = max_in_flight
        self._waiting: list[PendingRequest] = []
        self._in_flight: dict[Task[None], list[PendingRequest]] = {}  # the batch of each sender
        self._alarm: TimerHandle | None = None
        self._alarm_at = math.inf

    def add(self, one: PendingRequest) -> None:
        self._waiting.append(one)
        self._start_sender_if_needed()
        if one.deadline < self._alarm_at:
            self._set_alarm(one.deadline)

    def waiting(self) -> int:
        return len(self._waiting)

    # ── senders ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_sender_if_needed(self) -> None:
        """Start a sender if none is running. Start another if enough requests wait, or those of a failed batch."""
        senders = len(self._in_flight)
        is_worth_a_call = len(self._waiting) >= MIN_BATCH or self._waiting[0].alone
        if senders and (senders >= self._max_in_flight or not is_worth_a_call):
            return
        if [] in self._in_flight.values():  # it has not begun, and will take these requests
            return
        # In an empty context, because the batch does not belong to the caller that happens to be the first.
        sender = asyncio.get_running_loop().create_task(self._send_batches(), context=Context())
        self._in_flight[sender] = []
        sender.add_done_callback(self._on_sender_done)

    async def _send_batches(self) -> None:
        sender = asyncio.current_task()
        assert sender is not None  # noqa: S101 (for type checkers: this runs in a task)
        while self._waiting:
            batch = self._in_flight[sender] = self._take(self._in_flight[sender])
            if not batch:  # every request waits for a key in flight, whose sender takes it next
                return
            if self._waiting:
                self._start_sender_if_needed()
            await self._send_batch(batch)
            if len(self._in_flight) > 1:  # callers that just got their answers may join the next batch
                return

    def _on_sender_done(self, sender: Task[None]) -> None:
        """Send requests that waited for this sender's keys, and those that it left because it was cancelled."""
        batch = self._in_flight.pop(sender)
        error = None if sender.cancelled() else sender.exception()
        if isinstance(error, Exception):  # a bug in Onceward: its callers must not wait forever
            for one in batch:
                one.fail(error)
        self._requeue(batch)
        if self._waiting and (batch or not self._in_flight):  # otherwise all wait for the keys of another sender
            self._start_sender_if_needed()
        elif not (self._waiting or self._in_flight):
            self._cancel_alarm()

    def _requeue(self, batch: list[PendingRequest]) -> None:
        """Put requests without an answer back to the front of the queue."""
        again = [one for one in batch if not one.is_done()]
        if again:
            self._waiting[:0] = again
            self._set_alarm(min(one.deadline for one in self._waiting))

    # ── which requests are sent next ────────────────────────────────────────────────────────────────────────────

    def _take(self, done_batch: list[PendingRequest]) -> list[PendingRequest]:
        """Take the next batch. If several calls may be in flight, leave some requests to the others."""
        if len(self._in_flight) == 1:
            others = []
        else:
            others = [one for batch in self._in_flight.values() if batch is not done_batch for one in batch]
        total = len(self._waiting) + len(others) + len(done_batch)  # callers with an answer will soon send again
        limit = min(MAX_BATCH, max(MIN_BATCH, -(-total // self._max_in_flight)))
        in_flight_ids = {one.request.id for one in others if not one.is_done()} if others else ()
        batch, self._waiting = next_batch(self._waiting, limit, in_flight_ids)
        return batch

    # ── one call ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _send_batch(self, batch: list[PendingRequest]) -> None:
        until = min([one.deadline for one in batch])
        try:
            answers = await self._send([one.request for one in batch], max(0.0, until - monotonic()))
            if len(answers) != len(batch):
                raise StoreBroken(f"{len(batch)} requests, but {len(answers)} answers")  # noqa: TRY301 (handled like other errors)
        except Exception as error:  # noqa: BLE001 (raised in the caller)
            if len(batch) == 1:
                batch[0].fail(error)
            else:
                for one in batch:
                    one.alone = True
                self._requeue(batch)
            return
        for one, answer in zip(batch, answers, strict=True):
            one.resolve(answer)

    # ── one alarm for all waiting requests: most have the same timeout, so the first one sets it ────────────────

    def _set_alarm(self, deadline: float) -> None:
        self._cancel_alarm()
        self._alarm_at = deadline
        self._alarm = asyncio.get_running_loop().call_later(max(0.0, deadline - monotonic()), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        for one in [one for one in self._waiting if not (one.is_done() or remaining(one))]:
            one.leave()
        waiting = [one.deadline for one in self._waiting if not one.is_done()]
        if waiting:
            self._set_alarm(min(waiting))

    def _cancel_alarm(self) -> None:
        """Cancel the alarm: an unused queue keeps no timer in its loop."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm, self._alarm_at = None, math.inf
