"""What a consumer asks of a broker. An adapter is one file that fulfils this, and decides nothing.

Everything is asyncio. A client library that blocks is called by `asyncio.to_thread`. Each method may raise whatever the
library raises when the broker is not to be reached: the consumer tells it, waits, and asks again; a delivery that could
not be settled is delivered again by the broker, and recognised by its key. So no method repeats anything by itself, and
each works again after the broker was restarted: a library that does not reconnect has to be made to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .message import Delivery


class Queue(Protocol):
    """A subscription: one place that messages come from, shared by as many consumers as are started."""

    name: str
    """Which queue it is, for people and for the records of parked messages: never with a password."""

    ack_deadline: float | None
    """Seconds after which a delivery that was neither settled nor extended goes to somebody else. None: it stays ours
    as long as we are connected."""

    dead_letters: bool
    """Whether there is a dead letter queue, so that `dead_letter` may be called."""

    async def open(self) -> None:
        """Connect. What raises here ends the consumer: nothing is repeated before it has worked once."""
        ...

    async def close(self) -> None:
        """Disconnect, also if `open` was not finished. What was received and not settled goes back, sooner or later."""
        ...

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        """Up to `most` messages, as soon as there are any; none if there are none within about `wait` seconds.

        Those of deliveries that somebody else received and did not settle in time are among them.
        """
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """They are done: never deliver them again."""
        ...

    async def later(self, delivery: Delivery, seconds: float) -> None:
        """Deliver it again, to anybody, not before about that time. 0: at once.

        A broker that cannot wait that long may deliver earlier, but never at once: the consumer asks again.
        """
        ...

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Put it, with its id, its headers and the reason, where people look; then it is gone from this queue.

        In this order: what is interrupted in between is there twice, not gone.
        """
        ...

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """They are being worked on: the ack deadline counts from now. Those settled meanwhile are left alone."""
        ...
