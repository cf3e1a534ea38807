"""Apply messages to a `once.state(…)`: one store call per batch, which keeps the latest event of each entity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.keys.key import Scope
from onceward.latest import flow as flows
from onceward.latest.api import BaseLatestState
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Policy
from onceward.results.codec import Codec

from .in_flight import InFlight
from .message import Delivery
from .result_batch import Settle
from .settlement import Unreadable
from .work import Decode, Work


class LatestStateWork(Work):
    """The work of a consumer whose handler is a state. `decode` returns the event of a message."""

    def __init__(self, state: BaseLatestState[Any], decode: Decode, queue: str) -> None:
        threads = 0 if state.engine.runtime.supports_cancellation else 2
        super().__init__(state.client, state.engine, state.name, queue, decode, threads=threads)
        self._state = state

    async def process(self, deliveries: Sequence[Delivery], in_flight: InFlight, settle: Settle) -> None:  # noqa: ARG002 (there is no claim to track)
        events, readable = [], []
        for delivery in deliveries:
            event = self._decode_or_fail(delivery.message)
            if isinstance(event, Unreadable):
                await settle(delivery, event)
            else:
                events.append(event)
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

    def _record_settings(self) -> tuple[Scope, Policy, Codec]:
        return self._state.scope, self.client.policy, self._state.definition.codec
