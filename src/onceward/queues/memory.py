"""A queue in this process, for tests and examples. It has a broker's vices: what is not settled in time comes again."""

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
    """One message, from `put` to its ack."""

    id: str
    body: bytes
    headers: Mapping[str, str]
    deliveries: int = 0
    attempt: bool = False  # by whom its last delivery went to
    plan: int = 0  # the only one of its plans that counts


class MemoryQueue:
    """`put` may be called from any thread. `dead` holds the dead letters with the reason of each."""

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
        self._plans = itertools.count(1)
        self._due: list[tuple[float, int, _Entry]] = []  # delivered from then on, if that is still the plan
        self._left: set[_Entry] = set()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def put(self, body: bytes, *, id: str = "", headers: Mapping[str, str] | None = None) -> str:
        """Add a message; its id. Two messages of one id are two messages: senders repeat themselves."""
        entry = _Entry(id or f"{self.name}/{next(self._ids)}", body, dict(headers or {}))
        with self._lock:
            self._left.add(entry)
            self._plan(entry, self._monotonic())
        return entry.id

    def __len__(self) -> int:
        """How many are not done: waiting, delayed or in somebody's hand."""
        return len(self._left)

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """What is in hand comes again at its deadline."""

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        ends = self._monotonic() + wait
        bell = asyncio.Event()
        waiting = asyncio.get_running_loop(), bell
        self._waiting.add(waiting)
        try:
            while not (taken := self._take(most)) and (left := ends - self._monotonic()) > 0:
                next_due = self._due[0][0] - self._monotonic() if self._due else left
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.001, min(left, next_due))):
                        await bell.wait()
                bell.clear()
            return taken
        finally:
            self._waiting.discard(waiting)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._left.discard(delivery.handle[0])  # also a late one: the work is done, whoever holds it now

    async def later(self, delivery: Delivery, seconds: float) -> None:
        with self._lock:
            entry = self._attempt(delivery)
            if entry is not None:
                entry.attempt = False
                self._plan(entry, self._monotonic() + seconds)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if delivery.handle[0] in self._left:
            self.dead.append((delivery.message, reason))
        await self.ack([delivery])

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        with self._lock:
            for delivery in deliveries:
                entry = self._attempt(delivery)
                if entry is not None:
                    self._plan(entry, self._monotonic() + self._deadline)

    def _attempt(self, delivery: Delivery) -> _Entry | None:
        """The message, if this delivery is the last one of it, and not settled."""
        entry: _Entry
        entry, number = delivery.handle
        return entry if entry in self._left and entry.attempt and entry.deliveries == number else None

    def _plan(self, entry: _Entry, at: float) -> None:
        """Deliver it then."""
        entry.plan = next(self._plans)
        heapq.heappush(self._due, (at, entry.plan, entry))
        for loop, bell in tuple(self._waiting):
            loop.call_soon_threadsafe(bell.set)

    def _take(self, most: int) -> list[Delivery]:
        taken: list[Delivery] = []
        with self._lock:
            now = self._monotonic()
            while len(taken) < most and self._due and self._due[0][0] <= now:
                _, plan, entry = heapq.heappop(self._due)
                if entry not in self._left or plan != entry.plan:
                    continue
                entry.deliveries += 1
                entry.attempt = True
                message = Message(entry.body, entry.id, entry.headers, entry.deliveries)
                taken.append(Delivery(message, (entry, entry.deliveries)))
                self._plan(entry, now + self._deadline)
        return taken
