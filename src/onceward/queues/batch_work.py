"""A whole batch at work by one call: for work that knows its repeats by itself, such as a MERGE into a warehouse.

There is no claim and no record: what comes again is recognised where its effect is. What cannot be done is set aside as
everywhere, by the rule.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from onceward.client.base import BaseClient
from onceward.engine.deliver import park_apart
from onceward.errors import ConfigurationError
from onceward.protocol.outcome import Executed, Outcome

from .dead_letter import parked_job
from .driver import Driver
from .in_flight import InFlight
from .message import Delivery, Message
from .result_batch import Settle
from .settlement_rule import Unreadable

LARGEST = 2_000
"""Events in one call: enough to make a merge worth while, few enough to be done within any ack deadline."""

Told = Outcome[Any] | Exception | None
"""What became of one event. None: it is done. An exception: of this one alone, which is to come again."""


class Batch:
    """Lets a consumer hand up to `largest` events to `fn(events)` at once; `once` keeps what has to be set aside.

    `fn` tells for each event what became of it, in their order: an outcome, or None for done. What it raises concerns
    all of them: none is acknowledged, and all are delivered again. So it must bear to get an event twice, and is not
    called for two batches at the same time.
    """

    def __init__(
        self, once: BaseClient, fn: Callable[[Sequence[Any]], Sequence[Told]], *, name: str, largest: int = LARGEST
    ) -> None:
        if largest < 1:
            raise ConfigurationError(f"a batch of {largest} events is none", hint=f"largest={LARGEST} is the default")
        if inspect.iscoroutinefunction(fn):
            raise ConfigurationError(f"{name} is async, and batches are handed to plain functions", hint="let it block")
        self.client = once
        self.engine = once.engine
        self.fn = fn
        self.name = name
        self.largest = largest

    def __repr__(self) -> str:
        return f"<Batch {self.name}, up to {self.largest} events>"


class BatchWork:
    """What a `Batch` makes of messages: `decode` reads the event that each brings."""

    def __init__(self, batch: Batch, decode: Callable[[Message], Any], queue: str) -> None:
        self.engine = batch.engine
        self.client = batch.client
        self.name = batch.name
        self.largest = batch.largest
        self._batch = batch
        self._decode = decode
        self._queue = queue
        self._calls = Driver(1)  # one thread: batches go one after the other, and the loop stays free
        self._records = Driver(0 if self.engine.runtime.cancels else 1)

    async def do(self, deliveries: Sequence[Delivery], hand: InFlight, settle: Settle) -> None:  # noqa: ARG002 (there is no claim to be kept)
        outcomes = await self._calls(_colourless(self._told, [delivery.message for delivery in deliveries]))
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            await settle(delivery, outcome)

    def _told(self, messages: Sequence[Message]) -> list[Outcome[Any] | Unreadable | Exception]:
        read = [self._read(message) for message in messages]
        events = [one for one in read if not isinstance(one, Unreadable)]
        try:
            told = iter(_checked(self._batch.fn(events), len(events)) if events else ())
        except Exception as error:  # noqa: BLE001 (of the warehouse, say: the same events may be handed over again)
            return [one if isinstance(one, Unreadable) else error for one in read]
        return [one if isinstance(one, Unreadable) else next(told) or _DONE for one in read]

    def _read(self, message: Message) -> Any:
        try:
            return self._decode(message)
        except Exception as error:  # noqa: BLE001 (reading it is the user's own code, and the message is anybody's)
            return Unreadable(error)

    async def park(self, message: Message, kind: str, reason: str) -> bool:
        """Keep a PARKED record of a message that cannot be done. False: not now."""
        client = self.client
        job = parked_job(message, self._queue, client.state_scope(self.name), client.policy, client.codec())
        return await self._records(park_apart(self.engine, job, kind, reason))

    def close(self) -> None:
        self._calls.close()
        self._records.close()


_DONE: Outcome[Any] = Executed(key="")


async def _colourless(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(*args)


def _checked(told: Sequence[Told], events: int) -> Sequence[Told]:
    """A function that forgets one would have it acknowledged for another."""
    if len(told) != events:
        raise ConfigurationError(
            f"{events} events were handed over, and {len(told)} outcomes came back", hint="one each, in their order"
        )
    return told
