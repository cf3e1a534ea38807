"""Real brokers without the adapters: create and fill a queue, and count the messages left in it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import redis

from onceward.queues import Delivery, Queue
from onceward.queues.rabbitmq import RabbitQueue
from tests.queues.adapters import GROUP, adapter
from tests.servers.nats import NatsServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

Sent = Sequence[tuple[bytes, str]]
"""Bodies and their transport ids."""


class Broker(Protocol):
    """One queue, and its dead letters, on a server."""

    kind: str
    url: str
    name: str

    async def make(self) -> None: ...
    async def send(self, messages: Sent) -> None: ...
    async def remaining(self) -> int: ...
    async def dead_letters(self) -> list[bytes]: ...
    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue: ...


class OnNats:
    kind = "nats"

    def __init__(self, server: NatsServer) -> None:
        self.url = server.url
        self.name = f"s{uuid.uuid4().hex}"

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        return adapter(self.kind, self.url, self.name, dead_letters=dead_letters, ack_deadline=ack_deadline)

    async def make(self) -> None:
        async def make(context: Any) -> None:
            await context.add_stream(name=self.name, subjects=[f"{self.name}.new"])
            await context.add_stream(name=f"{self.name}-dead", subjects=[f"{self.name}.dead"])

        await self.on(make)

    async def send(self, messages: Sent) -> None:
        async def publish(context: Any) -> None:
            for body, id in messages:
                await context.publish(f"{self.name}.new", body, headers={"Nats-Msg-Id": id})

        await self.on(publish)

    async def remaining(self) -> int:
        from nats.js.errors import NotFoundError

        async def look(context: Any) -> int:
            try:
                info = await context.consumer_info(self.name, GROUP)
            except NotFoundError:  # no consumer has started yet
                return int((await context.stream_info(self.name)).state.messages)
            return int(info.num_pending + info.num_ack_pending)

        return int(await self.on(look))

    async def dead_letters(self) -> list[bytes]:
        async def look(context: Any) -> list[bytes]:
            state = (await context.stream_info(f"{self.name}-dead")).state
            found = range(state.first_seq, state.last_seq + 1)
            return [(await context.get_msg(f"{self.name}-dead", number)).data for number in found]

        found: list[bytes] = await self.on(look)
        return found

    async def on(self, call: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of the call with a JetStream context."""
        import nats

        client = await nats.connect(self.url)
        try:
            return await call(client.jetstream())
        finally:
            await client.close()


class OnRedisStreams:
    kind = "redis"

    def __init__(self, server: RedisServer) -> None:
        self.url = f"redis://127.0.0.1:{server.port}/0"
        self.name = f"orders:{uuid.uuid4().hex}"

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        return adapter(self.kind, self.url, self.name, dead_letters=dead_letters, ack_deadline=ack_deadline)

    async def make(self) -> None:
        """Do nothing: the consumer creates the stream."""

    async def send(self, messages: Sent) -> None:
        with redis.Redis.from_url(self.url) as client:
            pipe = client.pipeline(transaction=False)
            for body, id in messages:
                pipe.xadd(self.name, {"body": body, "id": id})
            pipe.execute()

    async def remaining(self) -> int:
        with redis.Redis.from_url(self.url) as client:
            entries: Any = client.xlen(self.name)
            groups: Any = client.xinfo_groups(self.name) if entries else []
            for group in groups:
                fresh: Any = client.xrange(self.name, b"(" + group["last-delivered-id"])
                return int(group["pending"]) + len(fresh)
            return int(entries)

    async def dead_letters(self) -> list[bytes]:
        with redis.Redis.from_url(self.url) as client:
            found: Any = client.xrange(f"{self.name}.dead")
            return [fields[b"body"] for _, fields in found]


class Counting(RabbitQueue):
    """Counts deliveries in flight: AMQP reports how many messages wait, but not how many are unacknowledged."""

    in_hand = 0
    moves = 0  # how often messages were received or returned

    async def close(self) -> None:
        await super().close()
        self.in_hand = 0  # its messages are back in the queue

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        received = await super().receive(max_messages, wait)
        self.in_hand += len(received)
        self.moves += len(received)
        return received

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await super().ack(deliveries)
        self.in_hand -= len(deliveries)
        self.moves += len(deliveries)


class OnRabbit:
    kind = "rabbitmq"

    DELAYS = tuple(50 * 2**step for step in range(8))

    def __init__(self, server: RabbitServer) -> None:
        self.url = server.url
        self.name = f"orders.{uuid.uuid4().hex}"
        self.made: list[Counting] = []

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        dead = f"{self.name}.dead" if dead_letters else None
        self.made.append(Counting(self.url, queue=self.name, dead_letter=dead))
        return self.made[-1]

    async def make(self) -> None:
        async def make(channel: Any) -> None:
            await channel.declare_queue(self.name, durable=True)
            await channel.declare_queue(f"{self.name}.dead", durable=True)

        await self.on(make)

    async def send(self, messages: Sent) -> None:
        import aio_pika

        async def publish(channel: Any) -> None:
            for body, id in messages:
                message = aio_pika.Message(body, message_id=id, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                await channel.default_exchange.publish(message, routing_key=self.name)

        await self.on(publish)

    async def remaining(self) -> int:
        """Count waiting and delayed messages, and those in flight in this process; other processes are not seen.

        No message may move meanwhile, or it is missed. Only expiring ones may: their target is counted last.
        """
        while True:
            before = sum(one.moves for one in self.made)
            waiting = await self._waiting()
            if before == sum(one.moves for one in self.made):
                return waiting + sum(one.in_hand + len(one._arrived) for one in self.made)

    async def _waiting(self) -> int:
        import aio_pika

        names = [*(f"{self.name}.later.{delay}" for delay in self.DELAYS), self.name]
        waiting = 0
        async with await aio_pika.connect(self.url) as connection:
            for name in names:
                channel = await connection.channel()  # the broker closes the channel if there is no such queue
                with contextlib.suppress(aio_pika.exceptions.ChannelNotFoundEntity):
                    waiting += (await channel.declare_queue(name, passive=True)).declaration_result.message_count or 0
        return waiting

    async def dead_letters(self) -> list[bytes]:
        async def take(channel: Any) -> list[bytes]:
            source = await channel.declare_queue(f"{self.name}.dead", durable=True)
            found = []
            while message := await source.get(fail=False):
                found.append(message.body)
                await message.ack()
            return found

        taken: list[bytes] = await self.on(take)
        return taken

    async def on(self, call: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of the call with a channel."""
        import aio_pika

        async with await aio_pika.connect(self.url) as connection:
            return await call(await connection.channel())
