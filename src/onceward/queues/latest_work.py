"""A state at work: a batch of events is one call to the store, which keeps the newest of each entity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.engine.deliver import park_apart
from onceward.latest import flow as flows
from onceward.latest.api import Kept
from onceward.protocol.outcome import Outcome

from .dead_letter import parked_job
from .driver import Driver
from .function_work import LARGEST_BATCH, Decode
from .in_flight import InFlight
from .message import Delivery, Message
from .result_batch import Settle
from .settlement_rule import Unreadable


class StateWork:
    """What a `once.state(…)` makes of messages: `decode` reads the event that each brings."""

    largest = LARGEST_BATCH

    def __init__(self, state: Kept[Any], decode: Decode, queue: str) -> None:
        self.engine = state.engine
        self.client = state.client
        self.name = state.name
        self._state = state
        self._decode = decode
        self._queue = queue
        self._drive = Driver(0 if self.engine.runtime.cancels else 2)

    async def do(self, deliveries: Sequence[Delivery], hand: InFlight, settle: Settle) -> None:  # noqa: ARG002 (there is no claim to be kept)
        events, readable = [], []
        for delivery in deliveries:
            try:
                events.append(self._decode(delivery.message))
            except Exception as error:  # noqa: BLE001 (reading it is the user's own code, and the message is anybody's)
                await settle(delivery, Unreadable(error))
            else:
                readable.append(delivery)
        outcomes: Sequence[Outcome[Any] | Exception]
        try:
            outcomes = await self._drive(flows.apply_all(self.engine, self._state.newest, events)) if events else []
        except Exception as error:  # noqa: BLE001 (of the store: the same events may be applied again)
            outcomes = [error for _ in events]
        for delivery, outcome in zip(readable, outcomes, strict=True):
            await settle(delivery, outcome)

    async def park(self, message: Message, kind: str, reason: str) -> bool:
        """Keep a PARKED record of a message that cannot be applied. False: not now."""
        policy = self.client.policy
        job = parked_job(message, self._queue, self._state.scope, policy, self._state.newest.codec)
        return await self._drive(park_apart(self.engine, job, kind, reason))

    def close(self) -> None:
        self._drive.close()
