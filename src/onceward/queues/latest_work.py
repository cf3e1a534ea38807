"""Apply messages to a `once.state(…)`: one store call per batch, which keeps the latest event of each entity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.latest import flow as flows
from onceward.latest.api import BaseLatestState
from onceward.protocol.outcome import Outcome

from .claims import park_message
from .dead_letter import parked_job
from .flow_runner import FlowRunner
from .function_work import MAX_BATCH, Decode
from .in_flight import InFlight
from .message import Delivery, Message
from .result_batch import Settle
from .settlement import Unreadable


class LatestStateWork:
    """The work of a consumer whose handler is a state. `decode` returns the event of a message."""

    largest = MAX_BATCH

    def __init__(self, state: BaseLatestState[Any], decode: Decode, queue: str) -> None:
        self.engine = state.engine
        self.client = state.client
        self.name = state.name
        self._state = state
        self._decode = decode
        self._queue = queue
        self._run_flow = FlowRunner(0 if self.engine.runtime.supports_cancellation else 2)

    async def process(self, deliveries: Sequence[Delivery], in_flight: InFlight, settle: Settle) -> None:  # noqa: ARG002 (there is no claim to track)
        events, readable = [], []
        for delivery in deliveries:
            try:
                events.append(self._decode(delivery.message))
            except Exception as error:  # noqa: BLE001 (`decode` is user code and the message is untrusted)
                await settle(delivery, Unreadable(error))
            else:
                readable.append(delivery)
        outcomes: Sequence[Outcome[Any] | Exception]
        try:
            outcomes = (
                await self._run_flow(flows.apply_all(self.engine, self._state.definition, events)) if events else []
            )
        except Exception as error:  # noqa: BLE001 (a store error: the same events can be applied again)
            outcomes = [error for _ in events]
        for delivery, outcome in zip(readable, outcomes, strict=True):
            await settle(delivery, outcome)

    async def park(self, message: Message, kind: str, reason: str) -> bool:
        """Store a PARKED record of a message that cannot be applied. Return False if that is not possible now."""
        policy = self.client.policy
        job = parked_job(message, self._queue, self._state.scope, policy, self._state.definition.codec)
        return await self._run_flow(park_message(self.engine, job, kind, reason))

    def close(self) -> None:
        self._run_flow.close()
