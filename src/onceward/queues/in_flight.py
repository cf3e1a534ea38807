"""Deliveries in flight: received and not settled yet. Extend their ack deadlines and batch acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onceward.engine.attempt import Attempt

from .client_calls import client_call
from .message import Delivery
from .port import Queue

EXTENSIONS_PER_DEADLINE = 3
"""Two extensions in a row may fail before the broker delivers to another consumer."""

OnError = Callable[[str, Exception], None]
"""Called with the name of the broker call that failed and its exception."""


class InFlight:
    """Tracks the deliveries in flight and extends their deadlines at the broker, as the heartbeat does at the store."""

    def __init__(self, queue: Queue, ack_deadline: float | None, on_error: OnError) -> None:
        self._queue = queue
        self._deadline = ack_deadline
        self._on_error = on_error
        self._attempts: dict[Delivery, Attempt | None] = {}
        self._to_ack: list[Delivery] = []
        self._acking: asyncio.Task[None] | None = None
        self._extending: asyncio.Task[None] | None = None
        self._removed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._attempts)

    def add(self, delivery: Delivery) -> None:
        self._attempts[delivery] = None
        if self._extending is None and self._deadline is not None:
            self._extending = asyncio.create_task(self._keep_extending(self._deadline / EXTENSIONS_PER_DEADLINE))

    def attach(self, delivery: Delivery, attempt: Attempt) -> None:
        """Record which attempt processes the delivery. If its claim is lost, the delivery is no longer extended."""
        self._attempts[delivery] = attempt

    def remove(self, delivery: Delivery) -> None:
        """Stop tracking a delivery that is about to be settled, or that is left to the broker."""
        self._attempts.pop(delivery, None)
        self._removed.set()

    def acknowledge(self, delivery: Delivery) -> None:
        """Settle a delivery by acknowledging it.

        Deliveries that become ready while a call to the broker is in progress are sent together in the next call.
        """
        self.remove(delivery)
        self._to_ack.append(delivery)
        if self._acking is None:
            self._acking = asyncio.create_task(self._keep_acking())

    async def _keep_acking(self) -> None:
        while self._to_ack:
            deliveries, self._to_ack = self._to_ack, []
            try:
                await client_call(self._queue.ack(deliveries))
            except Exception as error:  # noqa: BLE001 (redelivered, then recognised and acknowledged)
                self._on_error("ack", error)
        self._acking = None

    async def _keep_extending(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            owned = [delivery for delivery, attempt in self._attempts.items() if attempt is None or not attempt.lost]
            if not owned:
                continue
            try:
                await client_call(self._queue.extend(owned))
            except Exception as error:  # noqa: BLE001 (retried; otherwise the next consumer asks the store)
                self._on_error("extend", error)

    async def wait_until_below(self, limit: int, timeout: float) -> None:
        """Wait until fewer than `limit` deliveries are in flight, for at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while len(self._attempts) >= limit:
                    self._removed.clear()
                    await self._removed.wait()
        except TimeoutError:
            return

    async def wait_for_acks(self) -> None:
        """Wait until all pending acknowledgements are sent."""
        while self._acking is not None:
            await asyncio.wait([self._acking])

    async def close(self) -> None:
        if self._extending is not None:
            self._extending.cancel()
            await asyncio.wait([self._extending])
