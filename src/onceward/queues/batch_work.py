"""Process a whole batch in one call, for work that recognises duplicates itself, such as a MERGE into a warehouse.

There are no claims and no records: the target of the effect recognises redelivered events. Messages that cannot be
processed are dead-lettered or parked like all others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from onceward.client.base import BaseClient
from onceward.errors import ConfigurationError
from onceward.keys.key import Scope
from onceward.protocol.outcome import Executed, Outcome
from onceward.protocol.policy import Policy
from onceward.results.codec import Codec

from .in_flight import InFlight
from .message import Delivery, Message
from .result_batch import Settle
from .settlement import Unreadable
from .work import Decode, FlowRunner, Work

DEFAULT_BATCH_SIZE = 2_000
"""Events per call: enough to make a merge efficient, few enough to finish within any ack deadline."""

EventResult = Outcome[Any] | Exception | None
"""The result of one event. None: done. An exception: this event failed and is delivered again."""


class Batch:
    """Makes a consumer pass up to `largest` events at once to `fn(events)`. `once` stores the parked messages.

    `name` is their operation. `fn` returns one result per event, in the same order: an outcome, or None for done. An
    exception that `fn` raises applies to all events: none is acknowledged, and all are delivered again. So `fn` must
    tolerate receiving an event twice. It is never called for two batches at the same time.
    """

    def __init__(
        self,
        once: BaseClient,
        fn: Callable[[Sequence[Any]], Sequence[EventResult]],
        *,
        name: str,
        largest: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        if largest < 1:
            raise ConfigurationError(
                f"largest={largest}: a batch needs at least one event",
                hint=f"largest={DEFAULT_BATCH_SIZE} is the default",
            )
        if inspect.iscoroutinefunction(fn):
            raise ConfigurationError(
                f"{name} is async, but a Batch calls a plain function",
                hint="use a blocking function: def, not async def",
            )
        self.client = once
        self.engine = once.engine
        self.fn = fn
        self.name = name
        self.largest = largest

    def __repr__(self) -> str:
        return f"<Batch {self.name}, up to {self.largest} events>"


class BatchWork(Work):
    """The work of a consumer whose handler is a `Batch`. `decode` returns the event of a message."""

    def __init__(self, batch: Batch, decode: Decode, queue: str) -> None:
        threads = 0 if batch.engine.runtime.supports_cancellation else 1
        super().__init__(batch.client, batch.engine, batch.name, queue, decode, threads=threads)
        self.largest = batch.largest
        self._batch = batch
        self._run_batch = FlowRunner(1)  # one thread: batches run one after the other and do not block the event loop

    async def process(self, deliveries: Sequence[Delivery], in_flight: InFlight, settle: Settle) -> None:  # noqa: ARG002 (there is no claim to track)
        outcomes = await self._run_batch(_as_flow(self._call_function, [delivery.message for delivery in deliveries]))
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            await settle(delivery, outcome)

    def _call_function(self, messages: Sequence[Message]) -> list[Outcome[Any] | Unreadable | Exception]:
        decoded = [self._decode_or_fail(message) for message in messages]
        events = [event for event in decoded if not isinstance(event, Unreadable)]
        try:
            results = iter(_check_count(self._batch.fn(events), len(events)) if events else ())
        except Exception as error:  # noqa: BLE001 (an error of the warehouse, say: the same events can be passed again)
            return [event if isinstance(event, Unreadable) else error for event in decoded]
        return [event if isinstance(event, Unreadable) else next(results) or _DONE for event in decoded]

    def _record_settings(self) -> tuple[Scope, Policy, Codec]:
        return self.client.state_scope(self.name), self.client.policy, self.client.codec()

    def close(self) -> None:
        self._run_batch.close()
        super().close()


_DONE: Outcome[Any] = Executed(key="")


async def _as_flow(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(*args)


def _check_count(results: Sequence[EventResult], events: int) -> Sequence[EventResult]:
    """Raise unless there is one result per event. With one missing, the wrong events would be acknowledged."""
    if len(results) != events:
        raise ConfigurationError(
            f"the function received {events} events and returned {len(results)} results",
            hint="return one result per event, in the same order",
        )
    return results
