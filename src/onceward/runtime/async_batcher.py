"""Group commit among the tasks of an event loop: requests that arrive during a call are sent together in the next one.

- A batch belongs to no single caller. Cancelling one caller does not affect the others in the batch.
- A sender is a task that sends batches until no request waits. It starts in the loop's next iteration, so that
  requests which were started together are sent together. Before it ends, callers that just got their answers run: it
  also sends their next requests.
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
from collections.abc import Callable
from contextvars import Context
from operator import attrgetter
from time import monotonic

from onceward.errors import StoreBroken, WrongRuntime
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.requests import AnyRequest
from onceward.protocol.runtime import Send

from .next_batch import MAX_BATCH, next_batch, remaining
from .pending_request import PendingRequest

MIN_BATCH = 32
"""How many waiting requests justify another call while one is in flight. Fewer would waste the server's time."""


_request, _deadline, _id = attrgetter("request"), attrgetter("deadline"), attrgetter("id")


def wrong_runtime() -> WrongRuntime:
    return WrongRuntime(
        "AsyncOnce was used outside of an event loop", hint="await it in a coroutine, or use the sync client Once"
    )


class AsyncBatcher:
    """Batches requests, with one queue per event loop: several loops may use a client, each in its own thread."""

    def __init__(self, send: Send, max_in_flight: int = 1) -> None:
        self._send = send
        self._max_in_flight = max_in_flight
        self.reset()
        _batchers.add(self)

    def reset(self) -> None:
        """Drop all queues, also in a forked child: the parent's loops do not run there."""
        self._queues: dict[AbstractEventLoop, LoopQueue] = {}  # only of loops whose callers wait

    def ask(self, request: AnyRequest, timeout: float) -> PendingRequest:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise wrong_runtime() from None
        one = PendingRequest(request, monotonic() + timeout, loop.create_future())
        queue = self._queues.get(loop)
        if queue is None:
            queue = self._new_queue(loop)
        queue.add(one)
        return one

    def _new_queue(self, loop: AbstractEventLoop) -> LoopQueue:
        queues = self._queues
        for other in tuple(queues):
            if other.is_closed():  # while its callers waited
                queues.pop(other, None)
        queue = queues[loop] = LoopQueue(self._send, self._max_in_flight, lambda: queues.pop(loop, None))
        return queue

    def waiting(self) -> int:
        """Return how many requests wait for the next call, on all event loops."""
        return sum(queue.waiting() for queue in tuple(self._queues.values()))


_batchers: weakref.WeakSet[AsyncBatcher] = weakref.WeakSet()


def _reset_all() -> None:
    for batcher in tuple(_batchers):
        batcher.reset()


call_in_forked_child(_reset_all)


class LoopQueue:
    """The requests of one event loop, and the tasks that send them. It ends when all requests have their answers."""

    def __init__(self, send: Send, max_in_flight: int, on_end: Callable[[], object]) -> None:
        self._send = send
        self._max_in_flight = max_in_flight
        self._on_end = on_end
        self._waiting: list[PendingRequest] = []
        self._senders: dict[Task[None], list[PendingRequest]] = {}  # and the latest batch of each
        self._starting: Task[None] | None = None  # a sender that has not begun, and will take waiting requests
        self._ids_in_flight: set[bytes] = set()
        self._alarm: TimerHandle | None = None
        self._alarm_at = math.inf

    def add(self, one: PendingRequest) -> None:
        self._waiting.append(one)
        if not self._senders or len(self._waiting) >= MIN_BATCH:
            self._start_sender()
        if one.deadline < self._alarm_at:
            self._set_alarm(one.deadline)

    def waiting(self) -> int:
        return len(self._waiting)

    # ── senders ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_sender(self) -> None:
        if self._starting is not None or len(self._senders) >= self._max_in_flight:
            return
        # In an empty context, because the batch does not belong to the caller that happens to be the first.
        sender = asyncio.get_running_loop().create_task(self._send_batches(), context=Context())
        self._starting, self._senders[sender] = sender, []
        sender.add_done_callback(self._on_sender_done)

    def _is_worth_a_call(self, other_senders: int) -> bool:
        """Return whether to send waiting requests now. A few wait for a call in flight, unless their batch failed."""
        waiting = self._waiting
        return len(waiting) >= MIN_BATCH or (bool(waiting) and (not other_senders or waiting[0].alone))

    async def _send_batches(self) -> None:
        sender, self._starting = self._starting, None
        assert sender is not None  # noqa: S101 (for type checkers: no other sender was created since)
        while self._is_worth_a_call(len(self._senders) - 1):
            batch = self._senders[sender] = self._take()
            if not batch:  # every request waits for a key in flight, whose sender takes it next
                return
            if len(self._waiting) >= MIN_BATCH:
                self._start_sender()
            await self._send_batch(batch)
            if len(self._senders) > 1 or not self._waiting:
                await asyncio.sleep(0)  # callers that just got their answers may join the next batch

    def _on_sender_done(self, sender: Task[None]) -> None:
        """Send requests that arrived since its last call, and those that it left because it was cancelled."""
        batch = self._senders.pop(sender)
        if self._starting is sender:  # it was cancelled before it began
            self._starting = None
        error = None if sender.cancelled() else sender.exception()
        if isinstance(error, Exception):  # a bug in Onceward: its callers must not wait forever
            for one in batch:
                one.fail(error)
        self._requeue(batch)
        if self._waiting:
            if not self._senders or (batch and self._is_worth_a_call(len(self._senders))):
                self._start_sender()  # if it sent nothing, all wait for the keys of another sender
        elif not self._senders:
            self._cancel_alarm()
            self._on_end()

    def _requeue(self, batch: list[PendingRequest]) -> None:
        """Put requests without an answer back to the front of the queue."""
        again = [one for one in batch if not one.is_done()]
        if again:
            self._waiting[:0] = again
            self._set_alarm(min(one.deadline for one in self._waiting))

    # ── one call ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self) -> list[PendingRequest]:
        """Take the next batch. If several calls may be in flight, leave some requests to the others."""
        total = len(self._waiting)
        for batch in self._senders.values():
            total += len(batch)  # callers with an answer will soon send again
        limit = min(MAX_BATCH, max(MIN_BATCH, -(-total // self._max_in_flight)))
        batch, self._waiting = next_batch(self._waiting, limit, self._ids_in_flight)
        return batch

    async def _send_batch(self, batch: list[PendingRequest]) -> None:
        requests: list[AnyRequest] = list(map(_request, batch))
        ids: set[bytes] = set(map(_id, requests))
        until: float = min(map(_deadline, batch))
        self._ids_in_flight |= ids
        try:
            answers = await self._send(requests, max(0.0, until - monotonic()))
            if len(answers) != len(batch):
                raise StoreBroken(f"{len(batch)} requests, but {len(answers)} answers")  # noqa: TRY301 (handled like other errors)
        except Exception as error:  # noqa: BLE001 (raised in the caller)
            if len(batch) == 1:
                batch[0].fail(error)
            else:
                for one in batch:
                    one.alone = True
                self._requeue(batch)
                batch.clear()  # its sender no longer has them
            return
        finally:
            self._ids_in_flight -= ids
        for one, answer in zip(batch, answers, strict=True):
            if one.future.done():  # its caller was cancelled
                one.resolve(answer)
            else:
                one.future.set_result(answer)

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
