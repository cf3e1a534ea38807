"""SQS, Pub/Sub and Kafka tell the story that every adapter tells. Their pages say what the stand-ins leave untested."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from onceward.queues import Delivery, Queue
from onceward.queues.pubsub import PubSubQueue
from onceward.testing.queues import QueueConformance
from tests.queues.cloud import OnKafka, OnPubSub, OnSQS
from tests.servers.kafka import KafkaServer
from tests.servers.ministack import Ministack
from tests.servers.pubsub import PubSubServer


@pytest.fixture(scope="module")
def sqs() -> Iterator[Ministack]:
    server = Ministack().begin()
    yield server
    server.end()


@pytest.fixture(scope="module")
def pubsub() -> Iterator[PubSubServer]:
    server = PubSubServer().begin()
    yield server
    server.end()


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    server = KafkaServer().begin()
    yield server
    server.end()


class OnABroker(QueueConformance):
    server: str
    broker: Any

    @pytest.fixture(autouse=True)
    def _own_queue(self, request: pytest.FixtureRequest) -> None:
        self.broker = self.on(request.getfixturevalue(self.server))
        asyncio.run(self.broker.make())

    def on(self, server: Any) -> Any:
        raise NotImplementedError

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        queue: Queue = self.broker.queue(dead_letters=dead_letters, ack_deadline=ack_deadline)
        return queue

    async def put(self, body: bytes, id: str) -> None:
        await self.broker.send([(body, id)])

    async def left(self) -> int:
        return int(await self.broker.left())

    async def dead(self) -> list[bytes]:
        found: list[bytes] = await self.broker.dead()
        return found


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestSQS(OnABroker):
    server = "sqs"

    def on(self, server: Ministack) -> OnSQS:
        return OnSQS(server.url)


class Noting(PubSubQueue):
    """Notes what was acknowledged: the emulator does not tell what is left."""

    notes: set[str]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await super().ack(deliveries)
        self.notes |= {one.message.id for one in deliveries}


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestPubSub(OnABroker):
    server = "pubsub"

    def on(self, server: PubSubServer) -> OnPubSub:
        self._acknowledged: set[str] = set()
        self._put = 0
        return OnPubSub(server.address)

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        queue: Any = super().queue(dead_letters=dead_letters, ack_deadline=ack_deadline)
        queue.__class__ = Noting
        queue.notes = self._acknowledged
        noting: Queue = queue
        return noting

    async def put(self, body: bytes, id: str) -> None:
        await super().put(body, id)
        self._put += 1

    async def left(self) -> int:
        return self._put - len(self._acknowledged)


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestKafka(OnABroker):
    server = "kafka"

    def on(self, server: KafkaServer) -> OnKafka:
        return OnKafka(server.address)
