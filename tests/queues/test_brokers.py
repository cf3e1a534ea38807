"""The story of a consumer, told by each broker for real."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from onceward import AsyncOnce, ConfigurationError, MemoryStore
from onceward.queues import Consumer, Queue
from onceward.testing.queues import QueueConformance, Seen, noting
from tests.queues.brokers import Broker, OnNats, OnRabbit, OnRedisStreams
from tests.servers import nats, rabbitmq
from tests.servers.redis import shared


class OnBroker(QueueConformance):
    broker: Broker

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        return self.broker.queue(dead_letters=dead_letters, ack_deadline=ack_deadline)

    async def put(self, body: bytes, id: str) -> None:
        await self.broker.send([(body, id)])

    async def left(self) -> int:
        return await self.broker.left()

    async def dead(self) -> list[bytes]:
        return await self.broker.dead()


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestNats(OnBroker):
    @pytest.fixture(autouse=True)
    def _own_stream(self) -> None:
        self.broker = OnNats(nats.shared())
        asyncio.run(self.broker.make())

    def test_a_consumer_that_would_drop_messages_is_refused(self) -> None:
        from nats.js.api import ConsumerConfig

        async def make(context: Any) -> None:
            await context.add_consumer(self.broker.name, ConsumerConfig(durable_name="shop", max_deliver=3))

        assert isinstance(self.broker, OnNats)
        asyncio.run(self.broker.on(make))
        queue = self.queue(dead_letters=False, ack_deadline=1.0)
        with pytest.raises(ConfigurationError, match="drops a message after 3 deliveries"):
            Consumer(noting(AsyncOnce(MemoryStore()), Seen()), queue).run()


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestRedisStreams(OnBroker):
    @pytest.fixture(autouse=True)
    def _own_stream(self) -> None:
        self.broker = OnRedisStreams(shared("valkey"))

    def test_a_consumer_that_goes_leaves_the_group(self) -> None:
        self.test_what_is_done_is_acknowledged()
        with redis.Redis.from_url(self.broker.url) as client:
            assert client.xinfo_consumers(self.broker.name, "shop") == []


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestRabbit(OnBroker):
    @pytest.fixture(autouse=True)
    def _own_queue(self) -> None:
        self.broker = OnRabbit(rabbitmq.shared())
        asyncio.run(self.broker.make())
