"""Group commit among the tasks of an event loop: requests that arrive during a call are sent together in the next one.

- A batch belongs to no single caller: cancelling one caller does not affect the others in the batch.
- A batch is sent in the loop's next iteration, so that requests which were started together are sent together.
- A store that pipelines calls may have several smaller batches in flight: while one is answered, the next is served.
  There, a request is sent immediately if nothing is in flight.
- If each call is expensive, like a commit, a second batch is sent only for many requests (`min_batch`): half of the
  callers work while the other half wait. A key is never in two batches at the same time.
- If a batch fails, each request is repeated alone with the same nonce: one bad item fails alone.
- A request whose deadline passes leaves the queue. One that was already sent waits for its answer.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from asyncio import AbstractEventLoop, Future, TimerHandle, get_running_loop
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from threading import get_ident
from time import monotonic
from typing import Any

from onceward.errors import StoreBroken, WrongRuntime
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.requests import AnyRequest, Complete
from onceward.protocol.runtime import Send

from .batch_queue import MAX_BATCH, MAX_BATCH_BYTES, OVERHEAD, remaining, size_of
from .callback_steps import CallbackTask, StepCount
from .pending_request import PendingRequest, deliver_results

MIN_COMMIT_BATCH = 32  # lower limit of the batch size if calls are expensive: enough to share the cost
MIN_PIPELINED_BATCH = 8  # the same if calls are pipelined
SMALL_RESULTS_BYTES = MAX_BATCH_BYTES - MAX_BATCH * OVERHEAD  # results of this total size fit in any batch
NO_IDS: AbstractSet[bytes] = frozenset()


def running_loop() -> AbstractEventLoop:
    """Return the running event loop, or raise WrongRuntime."""
    try:
        return get_running_loop()
    except RuntimeError:
        raise WrongRuntime(
            "AsyncOnce was used outside of an event loop", hint="await it in a coroutine, or use the sync client Once"
        ) from None


class AsyncBatcher:
    """Batches requests, with one queue per event loop: several loops may use a client, each in its own thread."""

    def __init__(self, send: Send, max_in_flight: int = 1, min_batch: int = 1) -> None:
        self._send = send
        self._max_in_flight = max_in_flight
        self._min_batch = min_batch
        self.reset()
        _batchers.add(self)

    def reset(self) -> None:
        """Drop all queues, also in a forked child: the parent's loops do not run there."""
        self._queues: weakref.WeakKeyDictionary[AbstractEventLoop, LoopQueue] = weakref.WeakKeyDictionary()
        self._latest: tuple[Callable[[], Any], LoopQueue] | None = None

    def ask(self, request: AnyRequest, timeout: float) -> PendingRequest:
        latest = self._latest
        loop: Any = None if latest is None else latest[0]()
        if loop is None or loop._thread_id != get_ident():  # noqa: SLF001 (see `_queue_of`)
            loop = running_loop()
            queue = self._queue_of(loop)
        else:
            queue = latest[1]  # type: ignore[index]  # the queue of that loop
        one = PendingRequest(request, monotonic() + timeout, Future(loop=loop))
        try:
            queue.waiting.append(one)
            if len(queue.in_flight) < queue.max_in_flight and not queue.flush_scheduled:
                queue.on_new_request(one)
            elif one.deadline < queue.alarm_at:
                queue.set_alarm(one)
            return one
        except BaseException:  # a signal handler raised: no caller waits, so do not send the request
            one.keeps_waiting = False
            one.future.cancel()
            raise

    def _queue_of(self, loop: AbstractEventLoop) -> LoopQueue:
        """Return the loop's queue, and remember it for the next call.

        Before Python 3.12, asyncio makes a system call to find the running loop. Comparing the loop's thread is faster.
        """
        queue = self._queues.get(loop)
        if queue is None:
            queue = self._queues[loop] = LoopQueue(self._send, self._max_in_flight, self._min_batch)
        self._latest = (weakref.ref(loop), queue) if hasattr(loop, "_thread_id") else None
        return queue


_batchers: weakref.WeakSet[AsyncBatcher] = weakref.WeakSet()


def _reset_all() -> None:
    for batcher in tuple(_batchers):
        batcher.reset()


call_in_forked_child(_reset_all)


class LoopQueue:
    """The waiting requests of one event loop. It sends one batch at a time, or a few."""

    def __init__(self, send: Send, max_in_flight: int = 1, min_batch: int = 1) -> None:
        self._send = send
        self.max_in_flight = max_in_flight
        self._min_batch = min_batch
        self._sends_immediately = max_in_flight > min_batch == 1  # if nothing is in flight
        self.waiting: list[PendingRequest] = []
        self.in_flight: list[list[PendingRequest]] = []
        self._failed: set[PendingRequest] = set()  # their batch failed, and each waits to be sent alone
        self.flush_scheduled = False  # and has not started yet
        self._alarm: TimerHandle | None = None
        self.alarm_at = math.inf  # the earliest deadline; infinite without an alarm

    def on_new_request(self, one: PendingRequest) -> None:
        """Send the new request, or schedule that, if one more batch may be in flight."""
        if self._sends_immediately and not self.in_flight:
            self._flush()
            return
        if self._can_send_more():
            self._schedule_flush()
        if one.deadline < self.alarm_at:
            self.set_alarm(one)

    def _can_send_more(self) -> bool:
        """Return whether one more batch should be scheduled for the waiting requests."""
        if self.flush_scheduled or not self.in_flight:
            return not self.flush_scheduled
        return len(self.in_flight) < self.max_in_flight and len(self.waiting) >= self._min_batch

    def _schedule_flush(self) -> None:
        asyncio.get_running_loop().call_soon(self._flush)
        self.flush_scheduled = True  # after call_soon: if a signal handler raises in between, nothing is scheduled

    def _flush(self) -> None:
        self.flush_scheduled = False
        try:
            CallbackTask(self._send_batches).step()
        except BaseException:
            if self.waiting and not self.in_flight and not self.flush_scheduled:  # interrupted at its start
                self._schedule_flush()
            raise

    async def _send_batches(self, steps: StepCount) -> None:
        batch: list[PendingRequest] = []
        try:
            self.in_flight.append(batch)
            while self.waiting:
                until = self._fill_batch(batch)
                if self.waiting and self._can_send_more():
                    self._schedule_flush()
                if batch and not await self._send_batch(batch, until, steps):
                    await self._send_each(batch, steps)
                # While other batches are in flight, callers that just got their answers may join the next one.
                if self._min_batch > 1 and len(self.in_flight) + self.flush_scheduled > 1:
                    break
            self._finish_batch(batch)
            if batch and self.waiting and self._can_send_more():  # otherwise all wait for keys in flight
                self._schedule_flush()
        except GeneratorExit:  # interrupted before it continued; or the loop was closed, and its callers are gone
            with suppress(RuntimeError):
                if batch:
                    batch[0].future.get_loop().call_soon_threadsafe(self._requeue, batch)
            raise
        except BaseException:  # Ctrl-C, or a task of the store was cancelled
            self._requeue(batch)
            raise

    def _requeue(self, batch: list[PendingRequest]) -> None:
        """Send the requests of the batch again, unless they have an answer."""
        self._failed.difference_update(batch)
        self.waiting[:0] = [one for one in batch if not (one.is_done() or one in self.waiting)]
        self._finish_batch(batch)
        if self.waiting and not self.flush_scheduled:
            self._schedule_flush()

    def _finish_batch(self, batch: list[PendingRequest]) -> None:
        self.in_flight = [others for others in self.in_flight if others is not batch]
        if not (self.in_flight or self.waiting):
            self._cancel_alarm()

    # ── which requests are sent next ────────────────────────────────────────────────────────────────────────────

    def _fill_batch(self, batch: list[PendingRequest]) -> float:
        """Replace the batch by the requests to send next; return the deadline of the call.

        A request leaves the queue only after it is in the batch, so that an interrupt loses none.
        """
        limit, in_flight_ids = self._batch_limit(batch)
        first = self.waiting[:limit]
        until = min([one.deadline for one in first])
        requests = [one.request for one in first]
        ids = {one.id for one in requests}
        if (
            len(ids) == len(first)
            and until > monotonic()
            and True not in [one.future.done() for one in first]
            and ids.isdisjoint(in_flight_ids)
            and sum([len(one.result or b"") for one in requests if type(one) is Complete]) <= SMALL_RESULTS_BYTES
        ):
            batch[:] = first
            del self.waiting[: len(first)]
            return until
        chosen = self._select(limit, in_flight_ids)
        batch[:] = chosen
        self.waiting = [one for one in self.waiting if not (one.is_done() or one in chosen)]
        return min([one.deadline for one in chosen], default=until)

    def _batch_limit(self, done_batch: list[PendingRequest]) -> tuple[int, AbstractSet[bytes]]:
        """Return how many requests may replace this batch, and the ids in flight, whose requests must wait."""
        if self.max_in_flight == 1:
            return MAX_BATCH, NO_IDS
        if self._min_batch == 1:  # as many batches as allowed, of equal size: one is served while we process another
            total = len(self.waiting) + sum(map(len, self.in_flight)) - len(done_batch)
            return min(MAX_BATCH, max(MIN_PIPELINED_BATCH, -(-total // self.max_in_flight))), NO_IDS
        others = [one for batch in self.in_flight if batch is not done_batch for one in batch]
        total = len(self.waiting) + len(others) + len(done_batch)  # callers with an answer will soon send again
        return min(MAX_BATCH, max(MIN_COMMIT_BATCH, -(-total // self.max_in_flight))), {
            one.request.id for one in others
        }

    def _select(self, limit: int, in_flight_ids: AbstractSet[bytes]) -> list[PendingRequest]:
        """Return the next requests in order: one per key, limited in bytes, none past its deadline."""
        chosen: list[PendingRequest] = []
        ids, size, now = set(in_flight_ids), 0, monotonic()
        for one in self.waiting:
            if one.deadline <= now:
                one.leave()
            if one.is_done() or one.request.id in ids:
                continue
            size += size_of(one.request)
            if chosen and (size > MAX_BATCH_BYTES or len(chosen) == limit):
                break
            ids.add(one.request.id)
            chosen.append(one)
        return chosen

    # ── one call ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _send_each(self, batch: list[PendingRequest], steps: StepCount) -> None:
        """Send each request alone, after their batch failed."""
        self._failed.update(batch)
        self.set_alarm(min(batch, key=lambda one: one.deadline))
        for one in batch:
            self._failed.discard(one)
            if not one.is_done():
                await self._send_batch([one], one.deadline, steps)

    async def _send_batch(self, batch: list[PendingRequest], until: float, steps: StepCount) -> bool:
        """Send the batch in one call. False: it failed for several requests, and must be repeated for each."""
        before = steps.steps
        try:
            answers = await self._send([one.request for one in batch], max(0.0, until - monotonic()))
            if len(answers) != len(batch):
                raise StoreBroken(f"{len(batch)} requests, but {len(answers)} answers")  # noqa: TRY301 (handled like other errors)
        except Exception as error:  # noqa: BLE001 (raised in the caller)
            if len(batch) > 1:
                return False
            batch[0].fail(error)
            return True
        # If the store answered without waiting, callers could loop here forever: let the event loop run other tasks.
        deliver_results(batch, answers, now=steps.steps > before)
        return True

    # ── one alarm for all waiting requests: most have the same timeout, so the first one sets it ────────────────

    def set_alarm(self, one: PendingRequest) -> None:
        if one.deadline < self.alarm_at:
            self._cancel_alarm()
            self.alarm_at = one.deadline
            self._alarm = asyncio.get_running_loop().call_later(remaining(one), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self.alarm_at = None, math.inf
        self.flush_scheduled = False  # if a signal handler raised in `_flush`, no batch is scheduled
        for one in [one for one in (*self._failed, *self.waiting) if not one.is_done()]:
            if remaining(one):
                self.set_alarm(one)
            else:
                one.leave()
        if self.waiting and self._can_send_more():
            self._schedule_flush()

    def _cancel_alarm(self) -> None:
        """Cancel the alarm: an unused queue keeps no timer in its loop."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm, self.alarm_at = None, math.inf
