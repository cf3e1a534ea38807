"""An in-process queue for tests and examples. Like a broker, it redelivers messages that are not settled in time."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from .message import Delivery, Message


class _Entry(Struct, eq=False):
    """One message, from `put` until it is acknowledged."""

    id: str
    body: bytes
    headers: Mapping[str, str]
    deliveries: int = 0
    delivered: bool = False  # and neither settled nor put back since
    schedule: int = 0  # number of its valid entry in the heap; other entries are outdated


class MemoryQueue:
    """An in-process queue. `put` may be called from any thread.

    `name` identifies it in output. A message that is not settled within `ack_deadline` seconds is delivered again. With
    `dead_letters=True`, messages that cannot be processed are moved to `dead`, with their reasons. `monotonic` is the
    clock; pass the one of a fake clock in tests.
    """

    def __init__(
        self,
        name: str = "memory",
        *,
        ack_deadline: float = 30.0,
        dead_letters: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.ack_deadline: float | None = ack_deadline
        self.dead_letters = dead_letters
        self.dead: list[tuple[Message, str]] = []
        self._deadline = ack_deadline
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._schedules = itertools.count(1)
        self._due: list[tuple[float, int, _Entry]] = []  # by time of the next delivery; outdated entries are skipped
        self._entries: set[_Entry] = set()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def put(self, body: bytes, *, id: str = "", headers: Mapping[str, str] | None = None) -> str:
        """Add a message and return its id. Two messages with the same id stay two messages, as at a real broker.

        `body` is the message, and `headers` are passed on with it. Without an `id`, the queue creates one.
        """
        entry = _Entry(id or f"{self.name}/{next(self._ids)}", body, dict(headers or {}))
        with self._lock:
            self._entries.add(entry)
            self._schedule(entry, self._monotonic())
        return entry.id

    def __len__(self) -> int:
        """Return how many messages are not done: waiting, delayed or in flight."""
        return len(self._entries)

    async def open(self) -> None:
        """Do nothing: there is no broker to connect to."""

    async def close(self) -> None:
        """Do nothing: messages in flight are redelivered at their deadline."""

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        deadline = self._monotonic() + wait
        event = asyncio.Event()
        waiting = asyncio.get_running_loop(), event
        self._waiting.add(waiting)
        try:
            while not (taken := self._pop_due(max_messages)) and (left := deadline - self._monotonic()) > 0:
                next_due = self._due[0][0] - self._monotonic() if self._due else left
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.001, min(left, next_due))):
                        await event.wait()
                event.clear()
            return taken
        finally:
            self._waiting.discard(waiting)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._entries.discard(delivery.handle[0])  # a late ack counts, too: the work is done

    async def nack(self, delivery: Delivery, delay: float) -> None:
        with self._lock:
            entry = self._current(delivery)
            if entry is not None:
                entry.delivered = False
                self._schedule(entry, self._monotonic() + delay)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if delivery.handle[0] in self._entries:
            self.dead.append((delivery.message, reason))
        await self.ack([delivery])

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        with self._lock:
            for delivery in deliveries:
                entry = self._current(delivery)
                if entry is not None:
                    self._schedule(entry, self._monotonic() + self._deadline)

    def _current(self, delivery: Delivery) -> _Entry | None:
        """Return the message if this is its latest delivery and it is not settled."""
        entry: _Entry
        entry, number = delivery.handle
        return entry if entry in self._entries and entry.delivered and entry.deliveries == number else None

    def _schedule(self, entry: _Entry, at: float) -> None:
        """Schedule the next delivery of the message."""
        entry.schedule = next(self._schedules)
        heapq.heappush(self._due, (at, entry.schedule, entry))
        for loop, event in tuple(self._waiting):
            loop.call_soon_threadsafe(event.set)

    def _pop_due(self, max_messages: int) -> list[Delivery]:
        taken: list[Delivery] = []
        with self._lock:
            now = self._monotonic()
            while len(taken) < max_messages and self._due and self._due[0][0] <= now:
                _, schedule, entry = heapq.heappop(self._due)
                if entry not in self._entries or schedule != entry.schedule:
                    continue
                entry.deliveries += 1
                entry.delivered = True
                message = Message(entry.body, entry.id, entry.headers, entry.deliveries)
                taken.append(Delivery(message, (entry, entry.deliveries)))
                self._schedule(entry, now + self._deadline)
        return taken
