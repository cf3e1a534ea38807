"""Deliveries in hand: kept from being delivered to others while they are worked on, and acknowledged together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onceward.engine.attempt import Attempt

from .broker import Broker
from .message import Delivery

EXTENSIONS = 3
"""Per ack deadline: two may fail in a row before the broker delivers to somebody else."""

Trouble = Callable[[str, Exception], None]
"""Told what was tried, and what it raised."""


class InFlight:
    """Knows what is in hand, and says so to the broker, as the keeper says it to the store."""

    def __init__(self, broker: Broker, ack_deadline: float | None, trouble: Trouble) -> None:
        self._broker = broker
        self._deadline = ack_deadline
        self._trouble = trouble
        self._attempt: dict[Delivery, Attempt | None] = {}
        self._done: list[Delivery] = []
        self._acking: asyncio.Task[None] | None = None
        self._extending: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()

    def __len__(self) -> int:
        return len(self._attempt)

    def take(self, delivery: Delivery) -> None:
        self._attempt[delivery] = None
        if self._extending is None and self._deadline is not None:
            self._extending = asyncio.create_task(self._keep_extending(self._deadline / EXTENSIONS))

    def under(self, delivery: Delivery, attempt: Attempt) -> None:
        """It is worked on under this claim: once that is lost, the delivery is not held on to either."""
        self._attempt[delivery] = attempt

    def drop(self, delivery: Delivery) -> None:
        """It is about to be settled, or left to the broker."""
        self._attempt.pop(delivery, None)
        self._gone.set()

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge it. What comes while others are being acknowledged goes together, in the next call."""
        self._done.append(delivery)
        if self._acking is None:
            self._acking = asyncio.create_task(self._keep_acking())

    def done(self, delivery: Delivery) -> None:
        """It is settled by being acknowledged."""
        self.drop(delivery)
        self.ack(delivery)

    async def _keep_acking(self) -> None:
        while self._done:
            done, self._done = self._done, []
            try:
                await self._broker.ack(done)
            except Exception as error:  # noqa: BLE001 (they are delivered again, recognised and acknowledged then)
                self._trouble("ack", error)
        self._acking = None

    async def _keep_extending(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            ours = [one for one, attempt in self._attempt.items() if attempt is None or not attempt.lost]
            if not ours:
                continue
            try:
                await self._broker.extend(ours)
            except Exception as error:  # noqa: BLE001 (tried again; else the broker delivers it to somebody, who asks the store)
                self._trouble("extend", error)

    async def fewer(self, than: int, patience: float) -> None:
        """Wait until fewer are in hand than this, for at most that many seconds."""
        try:
            async with asyncio.timeout(patience):
                while len(self._attempt) >= than:
                    self._gone.clear()
                    await self._gone.wait()
        except TimeoutError:
            return

    async def acknowledged(self) -> None:
        """Wait until everything that was done is acknowledged."""
        while self._acking is not None:
            await asyncio.wait([self._acking])

    async def close(self) -> None:
        if self._extending is not None:
            self._extending.cancel()
            await asyncio.wait([self._extending])
