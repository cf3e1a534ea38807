"""SQS, Pub/Sub and Kafka: the story that every adapter tells, and a storm. Their pages say what stays untested.

One test a broker, its stories side by side: each of them mostly waits, and the servers are slow to start. What is about
the consumer more than about the adapter is told of these brokers in `make soak`, where the storm is larger, too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward.queues import Delivery, Queue
from onceward.queues.pubsub import PubSubQueue
from onceward.testing.queues import QueueConformance
from tests.queues.cloud import OnKafka, OnPubSub, OnSQS, Rented, Standing
from tests.queues.storm import storm
from tests.servers.kafka import KafkaServer
from tests.servers.ministack import Ministack
from tests.servers.pubsub import PubSubServer

TELLS_ALL = "ONCEWARD_STORM_MESSAGES" in os.environ  # as `make soak` says
MESSAGES = int(os.environ.get("ONCEWARD_STORM_MESSAGES", "60"))
KILLS = int(os.environ.get("ONCEWARD_STORM_KILLS", "1"))
OF_ADAPTERS = (
    "test_the_handler_receives_the_message_with_its_id",
    "test_an_acknowledgement_that_was_lost_leads_to_a_replay_and_to_another_one",
    "test_an_event_that_was_sent_twice_is_done_once_and_acknowledged_twice",
    "test_a_message_becomes_a_dead_letter_when_its_attempts_are_used_up",
    "test_messages_that_a_consumer_leaves_unsettled_go_to_another_one",
    "test_work_that_outlasts_the_ack_deadline_is_neither_delivered_again_nor_doubled",
)
ALL = tuple(name for name in vars(QueueConformance) if name.startswith("test_"))


class Told(QueueConformance):
    """A story of one of these brokers."""

    ack_deadline = 4.0

    def __init__(self, broker: Rented) -> None:
        self.broker = broker

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        return self.broker.queue(dead_letters=dead_letters, ack_deadline=ack_deadline)

    async def put(self, body: bytes, id: str) -> None:
        await self.broker.send([(body, id)])

    async def remaining(self) -> int:
        return await self.broker.remaining()

    async def dead_letters(self) -> list[bytes]:
        return await self.broker.dead_letters()


class Noting(PubSubQueue):
    """Notes what was acknowledged: the emulator does not tell what is left."""

    notes: set[str]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await super().ack(deliveries)
        self.notes |= {one.message.id for one in deliveries}


class ToldOfPubSub(Told):
    def __init__(self, broker: Rented) -> None:
        super().__init__(broker)
        self._notes: set[str] = set()
        self._put = 0

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        queue: Any = super().queue(dead_letters=dead_letters, ack_deadline=ack_deadline)
        queue.__class__ = Noting
        queue.notes = self._notes
        noting: Queue = queue
        return noting

    async def put(self, body: bytes, id: str) -> None:
        await super().put(body, id)
        self._put += 1

    async def remaining(self) -> int:
        return self._put - len(self._notes)


def tell(told: type[Told], broker: type[Rented], url: str) -> None:
    """Each story on a queue of its own."""

    def one(name: str) -> None:
        with closing(broker(url)) as own:
            asyncio.run(own.make())
            getattr(told(own), name)()

    names = ALL if TELLS_ALL else OF_ADAPTERS
    with ThreadPoolExecutor(len(OF_ADAPTERS)) as pool:
        told_by = {name: pool.submit(one, name) for name in names}
    wrong = [error.with_traceback(error.__traceback__) for one in told_by.values() if (error := one.exception())]
    if wrong:
        raise BaseExceptionGroup(f"not so: {[name for name, one in told_by.items() if one.exception()]}", wrong)


def weather(broker: Rented, folder: Path) -> None:
    """Duplicates, and consumers killed at random. The server stays: it would forget everything."""
    with closing(broker):
        workers = 2 if TELLS_ALL else 1  # starting them is most of the work
        done = storm(broker, Standing(), folder / "shop.db", messages=MESSAGES, kills=KILLS, workers=workers)
    # So few messages may be done before the one started last listens to signals: how it ends is told elsewhere.
    assert done._replace(ended_in_order=True).passed, done


pytestmark = [
    pytest.mark.mission("D1", "D5"),
    pytest.mark.fault("F70", "F71", "F72"),
    pytest.mark.timeout(7200 if TELLS_ALL else 300),
]


def test_sqs(tmp_path: Path) -> None:
    server = Ministack().begin()
    try:
        tell(Told, OnSQS, server.url)
        weather(OnSQS(server.url), tmp_path)
    finally:
        server.end()


def test_pubsub(tmp_path: Path) -> None:
    server = PubSubServer().begin()
    try:
        tell(ToldOfPubSub, OnPubSub, server.address)
        weather(OnPubSub(server.address), tmp_path)
    finally:
        server.end()


def test_kafka(tmp_path: Path) -> None:
    server = KafkaServer().begin()
    try:
        tell(Told, OnKafka, server.address)
        weather(OnKafka(server.address), tmp_path)
    finally:
        server.end()
