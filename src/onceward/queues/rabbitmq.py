"""RabbitMQ: a durable queue. `later` goes through a queue of its own for each delay, whose messages expire back here.

AMQP has no ack deadline: a delivery is ours as long as we are connected (and `consumer_timeout` of the server, 30
minutes unless set otherwise, is not over). Nothing is extended.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onceward.errors import ConfigurationError, MissingExtra

from .message import Delivery, Message

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

DELIVERIES = "x-onceward-deliveries"
REDELIVERIES = "x-delivery-count"  # of a quorum queue
REASON = "x-onceward-reason"
SHORTEST_DELAY = 50  # ms; each queue of delays is twice as long as the one before
UNUSED = 60_000  # ms that a queue of delays outlives its last message by: publishing does not count as use


class RabbitQueue:
    """A queue, made if there is none (durable; `arguments` as in its declaration, such as {"x-queue-type": "quorum"}).

    `dead_letter` is the queue of dead letters. A message's id is the `message_id` that its sender gave.
    """

    ack_deadline: float | None = None

    def __init__(
        self,
        url: str = "amqp://127.0.0.1/",
        *,
        queue: str,
        dead_letter: str | None = None,
        arguments: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.name = f"rabbitmq/{queue}"
        self.dead_letters = dead_letter is not None
        self._url = url
        self._queue = queue
        self._dead_letter = dead_letter
        self._arguments = arguments
        self._options = options
        self._connection: AbstractConnection | None = None
        self._prefetch = 0
        self._arrived: deque[AbstractIncomingMessage] = deque()

    async def open(self) -> None:
        self._prefetch = 0
        self._bell = asyncio.Event()
        await self._connect()

    async def _connect(self) -> None:
        """What is in hand belongs to a connection that is gone: the broker has it, and delivers it again."""
        try:
            import aio_pika
        except ImportError as error:
            raise MissingExtra("RabbitMQ needs aio-pika", hint='pip install "onceward[rabbitmq]"') from error
        await self.close()
        self._connection = connection = await aio_pika.connect(self._url, **self._options)
        self._channel: AbstractChannel = await connection.channel(publisher_confirms=True)
        self._source = await self._channel.declare_queue(self._queue, durable=True, arguments=self._arguments)
        if self._dead_letter is not None:
            await self._channel.declare_queue(self._dead_letter, durable=True)
        if self._prefetch:
            await self._subscribe(self._prefetch)

    async def _subscribe(self, most: int) -> None:
        await self._channel.set_qos(prefetch_count=most)
        self._tag = await self._source.consume(self._arrive)
        self._prefetch = most

    async def _arrive(self, message: AbstractIncomingMessage) -> None:
        self._arrived.append(message)
        self._bell.set()

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed:
            await self._connection.close()
        self._arrived.clear()  # the broker has them back

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        """The broker sends by itself, as many at a time as the first call asked for."""
        if not await self._subscribed():
            await self._connect()
        if not self._prefetch:
            await self._subscribe(most)
        if not self._arrived:
            self._bell.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._bell.wait()
            except TimeoutError:
                return []
        taken = [self._arrived.popleft() for _ in range(min(most, len(self._arrived)))]
        return [Delivery(_message(one), one) for one in taken]

    async def _subscribed(self) -> bool:
        """Whether messages can come. A queue that was deleted ends the subscription, though the channel stays open."""
        if self._connection is None or self._connection.is_closed or self._channel.is_closed:
            return False
        underlay: Any = await self._channel.get_underlay_channel()
        return not self._prefetch or self._tag in underlay.consumers

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await delivery.handle.ack()

    async def later(self, delivery: Delivery, seconds: float) -> None:
        """Put into the queue of that delay, then acknowledged here; in between it is there twice."""
        if seconds <= 0:
            await delivery.handle.nack(requeue=True)
            return
        steps = max(0, math.ceil(math.log2(seconds * 1000 / SHORTEST_DELAY)))
        delay = SHORTEST_DELAY * 2**steps
        name = f"{self._queue}.later.{delay}"
        arguments = {
            "x-message-ttl": delay,
            "x-expires": 2 * delay + UNUSED,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self._queue,
        }
        await self._channel.declare_queue(name, durable=True, arguments=arguments)
        await self._publish(name, delivery, {DELIVERIES: delivery.message.deliveries})
        await self.ack([delivery])

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """There is no deadline to be extended."""

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if self._dead_letter is None:
            raise ConfigurationError(f"{self.name} has no dead letters", hint='give dead_letter="orders.dead"')
        await self._publish(self._dead_letter, delivery, {REASON: reason})
        await self.ack([delivery])

    async def _publish(self, queue: str, delivery: Delivery, more: dict[str, Any]) -> None:
        """A copy of it, confirmed by the broker. A queue that is not there is an error, not a loss."""
        import aio_pika

        original: AbstractIncomingMessage = delivery.handle
        headers = {name: value for name, value in original.headers.items() if name != REDELIVERIES}  # ours has them
        copy = aio_pika.Message(
            original.body,
            headers={**headers, **more},
            content_type=original.content_type,
            content_encoding=original.content_encoding,
            message_id=original.message_id,
            correlation_id=original.correlation_id,
            reply_to=original.reply_to,
            timestamp=original.timestamp,
            type=original.type,
            app_id=original.app_id,
            priority=original.priority,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        await self._channel.default_exchange.publish(copy, routing_key=queue, mandatory=True)


def _message(one: AbstractIncomingMessage) -> Message:
    headers = {name: str(value) for name, value in one.headers.items()}
    before = _count(one.headers.get(DELIVERIES)) or 0
    again = _count(one.headers.get(REDELIVERIES))
    return Message(
        one.body, one.message_id or "", headers, before + (bool(one.redelivered) if again is None else again) + 1
    )


def _count(told: object) -> int | None:
    """A sender may say anything in a header."""
    return told if isinstance(told, int) and told >= 0 else None
