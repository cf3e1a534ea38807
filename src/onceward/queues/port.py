"""The interface that a consumer needs from a broker. An adapter is one file that implements it and decides nothing.

All methods are asyncio coroutines. Adapters call blocking client libraries through `asyncio.to_thread`.

Each method may raise whatever the library raises when the broker is unreachable. The consumer reports the error, waits
and calls again. The broker redelivers a delivery that could not be settled, and the consumer recognises it by its key.
So no method retries by itself, and each method must work again after the broker was restarted. If the library does not
reconnect, the adapter has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .message import Delivery


class Queue(Protocol):
    """A source of messages that any number of consumers share."""

    name: str
    """Identifies the queue in output and in the records of parked messages. Must not contain a password."""

    ack_deadline: float | None
    """Seconds until the broker redelivers a delivery that was neither settled nor extended. None: the delivery belongs
    to this consumer for as long as it stays connected."""

    dead_letters: bool
    """Whether a dead letter queue is configured, so that `dead_letter` may be called."""

    async def open(self) -> None:
        """Connect. An exception ends the consumer: it retries only after the first connection has succeeded."""
        ...

    async def close(self) -> None:
        """Disconnect, even if `open` did not finish. The broker redelivers what was received and not settled."""
        ...

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        """Return up to `max_messages` messages as soon as any are available, or none after about `wait` seconds.

        This includes messages that another consumer received and did not settle in time.
        """
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge the `deliveries`: the broker must not deliver them again."""
        ...

    async def nack(self, delivery: Delivery, delay: float) -> None:
        """Redeliver the message of this `delivery`, to any consumer, after about `delay` seconds. 0: immediately.

        A broker that cannot delay for that long may deliver earlier, but not immediately. The consumer then calls
        `nack` again.
        """
        ...

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy the message of this `delivery` to the dead letter queue, then acknowledge it.

        The copy has the same id and headers, and the `reason`. In this order: an interruption in between leaves two
        copies instead of none.
        """
        ...

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Restart the ack deadline of `deliveries` in progress. Ignore those that were settled in the meantime."""
        ...
