"""Kafka, as far as the one-broker mock of its client goes: see docs/howto/kafka.md for what that leaves untested."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.queues import Delivery, Queue
from onceward.queues.kafka import KafkaQueue
from onceward.queues.offsets import Offsets
from onceward.testing.queues import QueueConformance
from tests.servers.kafka import KafkaServer, Topic


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    server = KafkaServer().begin()
    yield server
    server.end()


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestKafka(QueueConformance):
    ack_deadline = 6.0

    @pytest.fixture(autouse=True)
    def _own_topic(self, kafka: KafkaServer) -> Iterator[None]:
        self._topic = Topic(kafka, f"t{uuid.uuid4().hex}")
        yield
        self._topic.close()

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        deadline = {"max.poll.interval.ms": int(ack_deadline * 1000), "session.timeout.ms": int(ack_deadline * 1000)}
        return KafkaQueue(
            self._topic.name, self._topic.settings | deadline, dead_letter=self._topic.dead if dead_letters else None
        )

    async def put(self, body: bytes, id: str) -> None:
        await asyncio.to_thread(self._topic.put, body)

    async def left(self) -> int:
        return await asyncio.to_thread(self._topic.left)

    async def dead(self) -> list[bytes]:
        return await asyncio.to_thread(self._topic.dead_letters)


def test_what_is_done_ahead_of_its_turn_is_committed_with_what_it_waits_for() -> None:
    offsets = Offsets()
    for offset in (7, 8, 10, 11):  # 9 is no message: Kafka's own markers have offsets, too
        offsets.received(offset)
    assert (offsets.position, offsets.moved) == (7, False)
    offsets.done(8)
    offsets.done(11)
    assert (offsets.position, offsets.moved) == (7, False)
    offsets.done(7)
    assert (offsets.position, offsets.moved, offsets.ahead) == (10, True, 2)
    offsets.committed(10)
    assert not offsets.moved
    offsets.done(10)
    assert (offsets.position, offsets.moved, offsets.ahead) == (12, True, 0)


@pytest.mark.parametrize("settings", [{}, {"group.id": "g", "enable.auto.commit": True}])
def test_settings_that_would_lose_messages_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        KafkaQueue("orders", settings)


async def received(queue: KafkaQueue, number: int) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < number:
        found += await queue.receive(number - len(found), 0.5)
    return found


async def test_offsets_are_committed_in_order_and_the_rest_comes_again(kafka: KafkaServer) -> None:
    topic = Topic(kafka, f"t{uuid.uuid4().hex}")
    for number in range(4):
        topic.put(b"%d" % number, partition=0)
    first = KafkaQueue(topic.name, topic.settings)
    await first.open()
    deliveries = await received(first, 4)
    assert [one.message.id for one in deliveries] == [f"{topic.name}-0-{offset}" for offset in range(4)]
    await first.ack([deliveries[2]])
    await first.ack([deliveries[0]])
    assert topic.committed() == 1, "the second is not done, and the third must not overtake it"
    await first.later(deliveries[1], 0)
    again = await received(first, 1)
    assert (again[0].message.body, again[0].message.deliveries) == (b"1", 2)
    await first.close()

    second = KafkaQueue(topic.name, topic.settings)
    await second.open()
    assert [one.message.body for one in await received(second, 3)] == [b"1", b"2", b"3"]
    await second.close()
    topic.close()


async def test_a_partition_whose_first_message_is_never_done_is_paused_in_the_end(kafka: KafkaServer) -> None:
    topic = Topic(kafka, f"t{uuid.uuid4().hex}")
    for number in range(20):
        topic.put(b"%d" % number, partition=0)
    queue = KafkaQueue(topic.name, topic.settings, most_ahead=5)
    await queue.open()
    stuck, *others = await received(queue, 5)
    await queue.ack(others)
    assert await queue.receive(10, 0.5) == []
    await queue.ack([stuck])
    assert await received(queue, 1)
    await queue.close()
    topic.close()
