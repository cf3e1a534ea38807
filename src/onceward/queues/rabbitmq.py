"""RabbitMQ: a durable queue. `nack` uses one extra queue per delay, whose messages expire back into this queue.

AMQP has no ack deadline, so nothing is extended. A delivery belongs to the consumer while it stays connected, up to the
server's `consumer_timeout` (30 minutes by default).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onceward.errors import ConfigurationError
from onceward.protocol.extras import import_extra

from .message import Delivery, Message

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

DELIVERIES = "x-onceward-deliveries"
DELIVERY_COUNT = "x-delivery-count"  # set by quorum queues
REASON = "x-onceward-reason"
MIN_DELAY = 50  # ms; each delay queue delays twice as long as the previous one
IDLE_EXPIRY = 60_000  # ms that a delay queue outlives its last message: publishing does not count as use


class RabbitQueue:
    """A durable queue at the server `url`, declared if missing with `arguments`, such as {"x-queue-type": "quorum"}.

    `dead_letter` is the queue of dead letters. `options` are passed to the driver's connection. A message's id is the
    `message_id` that its sender set.
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
        self._arrival = asyncio.Event()
        await self._connect()

    async def _connect(self) -> None:
        """Open a new connection. The broker redelivers what the previous connection had in flight."""
        aio_pika = import_extra("aio_pika", "RabbitMQ needs aio-pika", 'pip install "onceward[rabbitmq]"')
        await self.close()
        self._connection = connection = await aio_pika.connect(self._url, **self._options)
        self._channel: AbstractChannel = await connection.channel(publisher_confirms=True)
        self._source = await self._channel.declare_queue(self._queue, durable=True, arguments=self._arguments)
        if self._dead_letter is not None:
            await self._channel.declare_queue(self._dead_letter, durable=True)
        if self._prefetch:
            await self._subscribe(self._prefetch)

    async def _subscribe(self, max_messages: int) -> None:
        await self._channel.set_qos(prefetch_count=max_messages)
        self._tag = await self._source.consume(self._on_message)
        self._prefetch = max_messages

    async def _on_message(self, message: AbstractIncomingMessage) -> None:
        self._arrived.append(message)
        self._arrival.set()

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed:
            await self._connection.close()
        self._arrived.clear()  # the broker redelivers them

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        """Return messages that the broker pushed. The first call sets the prefetch count."""
        if not await self._subscribed():
            await self._connect()
        if not self._prefetch:
            await self._subscribe(max_messages)
        if not self._arrived:
            self._arrival.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._arrival.wait()
            except TimeoutError:
                return []
        taken = [self._arrived.popleft() for _ in range(min(max_messages, len(self._arrived)))]
        return [Delivery(_message(one), one) for one in taken]

    async def _subscribed(self) -> bool:
        """Return whether messages can arrive. If the queue is deleted, the subscription ends but the channel stays."""
        if self._connection is None or self._connection.is_closed or self._channel.is_closed:
            return False
        underlay: Any = await self._channel.get_underlay_channel()
        return not self._prefetch or self._tag in underlay.consumers

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await delivery.handle.ack()

    async def nack(self, delivery: Delivery, delay: float) -> None:
        """Copy the message to a delay queue, then acknowledge it. In between there are two copies."""
        if delay <= 0:
            await delivery.handle.nack(requeue=True)
            return
        steps = max(0, math.ceil(math.log2(delay * 1000 / MIN_DELAY)))
        milliseconds = MIN_DELAY * 2**steps
        name = f"{self._queue}.later.{milliseconds}"
        arguments = {
            "x-message-ttl": milliseconds,
            "x-expires": 2 * milliseconds + IDLE_EXPIRY,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self._queue,
        }
        await self._channel.declare_queue(name, durable=True, arguments=arguments)
        await self._publish(name, delivery, {DELIVERIES: delivery.message.deliveries})
        await self.ack([delivery])

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Do nothing: AMQP has no ack deadline."""

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if self._dead_letter is None:
            raise ConfigurationError(f"{self.name} has no dead letter queue", hint='pass dead_letter="orders.dead"')
        await self._publish(self._dead_letter, delivery, {REASON: reason})
        await self.ack([delivery])

    async def _publish(self, queue: str, delivery: Delivery, extra_headers: dict[str, Any]) -> None:
        """Publish a copy and wait for the confirmation. A missing queue raises instead of losing the message."""
        import aio_pika

        original: AbstractIncomingMessage = delivery.handle
        headers = {
            name: value for name, value in original.headers.items() if name != DELIVERY_COUNT
        }  # included in DELIVERIES
        copy = aio_pika.Message(
            original.body,
            headers={**headers, **extra_headers},
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


def _message(incoming: AbstractIncomingMessage) -> Message:
    headers = {name: str(value) for name, value in incoming.headers.items()}
    before = _count(incoming.headers.get(DELIVERIES)) or 0
    redelivered = _count(incoming.headers.get(DELIVERY_COUNT))
    if redelivered is None:
        redelivered = int(bool(incoming.redelivered))
    return Message(incoming.body, incoming.message_id or "", headers, before + redelivered + 1)


def _count(value: object) -> int | None:
    """Return the header's value if it is a count. Senders may set any value."""
    return value if isinstance(value, int) and value >= 0 else None
