"""Only in Kafka: offsets are committed in order. The conformance tests of all adapters are in test_cloud.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError
from onceward.queues import Consumer, Delivery
from onceward.queues.kafka import KafkaQueue, Offsets
from onceward.stores import MemoryStore
from onceward.testing.queues.base import wait_until
from tests.queues.cloud import SHORTEST_SESSION, OnKafka, of_group
from tests.servers.kafka import KafkaServer


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    server = KafkaServer().begin()
    yield server
    server.end()


def test_an_early_acknowledgement_is_committed_with_the_one_it_waits_for() -> None:
    offsets = Offsets()
    for offset in (7, 8, 10, 11):  # offset 9 is not a message: Kafka's own markers have offsets too
        offsets.mark_received(offset)
    assert (offsets.position, offsets.needs_commit) == (7, False)
    offsets.mark_done(8)
    offsets.mark_done(11)
    assert (offsets.position, offsets.needs_commit) == (7, False)
    offsets.mark_done(7)
    assert (offsets.position, offsets.needs_commit, offsets.uncommitted) == (10, True, 2)
    offsets.mark_committed(10)
    assert not offsets.needs_commit
    offsets.mark_done(10)
    assert (offsets.position, offsets.needs_commit, offsets.uncommitted) == (12, True, 0)


@pytest.mark.parametrize("settings", [{}, {"group.id": "g", "enable.auto.commit": True}])
def test_settings_that_would_lose_messages_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        KafkaQueue("orders", settings)


async def received(queue: KafkaQueue, number: int, wait: float = 0.5) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < number:
        found += await queue.receive(number - len(found), wait)
    return found


async def opened(topic: OnKafka, **choices: Any) -> KafkaQueue:
    quick = {
        "session.timeout.ms": 3000,
        "heartbeat.interval.ms": 500,
    }  # the mock reassigns partitions only when a session is over
    queue = KafkaQueue(topic.name, of_group(topic.url, topic.name) | quick, **choices)
    await queue.open()
    return queue


async def test_offsets_are_committed_in_order_and_the_rest_comes_again(kafka: KafkaServer) -> None:
    topic = OnKafka(kafka.address)
    topic.produce([(b"%d" % number, 0) for number in range(4)])
    first = await opened(topic)
    deliveries = await received(first, 4)
    assert [one.message.id for one in deliveries] == [f"{topic.name}-0-{offset}" for offset in range(4)]
    await first.ack([deliveries[2]])
    await first.ack([deliveries[0]])
    assert topic.committed() == 1, "the second is not done, and the third must not overtake it"
    await first.nack(deliveries[1], 0)
    again = await received(first, 1)
    assert (again[0].message.body, again[0].message.deliveries) == (b"1", 2)
    await first.close()

    second = await opened(topic)
    assert [one.message.body for one in await received(second, 3)] == [b"1", b"2", b"3"]
    await second.close()
    topic.close()


@pytest.mark.parametrize("wait", [0.5, 60.0])  # 60 s: the very call that is assigned the partition receives from it
async def test_a_partition_whose_first_message_is_never_done_is_paused_in_the_end(
    kafka: KafkaServer, wait: float
) -> None:
    topic = OnKafka(kafka.address)
    topic.produce([(b"%d" % number, 0) for number in range(20)])
    queue = await opened(topic, max_uncommitted=5)
    stuck, *others = await received(queue, 5, wait)
    await queue.ack(others)
    assert await queue.receive(10, 0.5) == []
    await queue.ack([stuck])
    assert await received(queue, 1)
    await queue.close()


@pytest.mark.fault("F70")
async def test_a_consumer_at_its_concurrency_limit_stays_in_its_group(kafka: KafkaServer) -> None:
    """It receives nothing meanwhile, and Kafka removes a member that does not poll from its group."""
    topic = OnKafka(kafka.address)
    topic.produce([(b'{"id": "a"}', 0), (b'{"id": "b"}', 0)])
    once = AsyncOnce(MemoryStore())
    begun: list[str] = []

    @once(key="{event[id]}", name="book")
    async def book(event: dict[str, str]) -> None:
        begun.append(event["id"])
        await asyncio.sleep(1.5 * SHORTEST_SESSION if event["id"] == "a" else 0)

    queue = topic.queue(dead_letters=False, ack_deadline=SHORTEST_SESSION)
    consumer = Consumer(book, queue, concurrency=1)
    task = asyncio.create_task(consumer.consume())
    await wait_until(lambda: topic.committed() == 2)
    consumer.stop()
    await task
    assert begun == ["a", "b"]
    assert once.counts.get("skipped", 0) == 0, "it was delivered twice"
    assert once.counts.get("queue_failed", 0) == 0
    topic.close()
