"""SQS, Pub/Sub and Kafka: the conformance tests of queues, and a storm. Their pages say what is not tested.

One test per broker runs its cases concurrently: each case mostly waits, and the servers are slow to start. Cases about
the consumer rather than the adapter run on these brokers only in `make soak`, with a larger storm.
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
from tests.queues.cloud import CloudBroker, NeverRestarted, OnKafka, OnPubSub, OnSQS
from tests.queues.storm import storm
from tests.servers.kafka import KafkaServer
from tests.servers.ministack import Ministack
from tests.servers.pubsub import PubSubServer

RUN_ALL = "ONCEWARD_STORM_MESSAGES" in os.environ  # set by `make soak`
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


class CloudConformance(QueueConformance):
    """The conformance tests on one of these brokers."""

    ack_deadline = 4.0

    def __init__(self, broker: CloudBroker) -> None:
        self.broker = broker

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        return self.broker.queue(dead_letters=dead_letters, ack_deadline=ack_deadline)

    async def put(self, body: bytes, id: str) -> None:
        await self.broker.send([(body, id)])

    async def remaining(self) -> int:
        return await self.broker.remaining()

    async def dead_letters(self) -> list[bytes]:
        return await self.broker.dead_letters()


class KafkaConformance(CloudConformance):
    may_redeliver = True  # if the group rebalances, for example because a member joins late on a busy machine


class AckRecorder(PubSubQueue):
    """Records acknowledged messages: the emulator does not report what is left."""

    notes: set[str]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await super().ack(deliveries)
        self.notes |= {one.message.id for one in deliveries}


class PubSubConformance(CloudConformance):
    def __init__(self, broker: CloudBroker) -> None:
        super().__init__(broker)
        self._notes: set[str] = set()
        self._put = 0

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        queue: Any = super().queue(dead_letters=dead_letters, ack_deadline=ack_deadline)
        queue.__class__ = AckRecorder
        queue.notes = self._notes
        recorder: Queue = queue
        return recorder

    async def put(self, body: bytes, id: str) -> None:
        await super().put(body, id)
        self._put += 1

    async def remaining(self) -> int:
        return self._put - len(self._notes)


def run_cases(suite: type[CloudConformance], broker: type[CloudBroker], url: str) -> None:
    """Run each case on its own queue."""

    def one(name: str) -> None:
        with closing(broker(url)) as own:
            asyncio.run(own.make())
            getattr(suite(own), name)()

    names = ALL if RUN_ALL else OF_ADAPTERS
    with ThreadPoolExecutor(len(OF_ADAPTERS)) as pool:
        results = {name: pool.submit(one, name) for name in names}
    wrong = [error.with_traceback(error.__traceback__) for one in results.values() if (error := one.exception())]
    if wrong:
        raise BaseExceptionGroup(f"failed: {[name for name, one in results.items() if one.exception()]}", wrong)


def run_storm(broker: CloudBroker, folder: Path) -> None:
    """Run a storm of duplicates and random kills. The server is not killed: it would lose its messages."""
    with closing(broker):
        workers = 2 if RUN_ALL else 1  # most of the time goes into starting them
        done = storm(broker, NeverRestarted(), folder / "shop.db", messages=MESSAGES, kills=KILLS, workers=workers)
    # So few messages may be done before the last worker handles signals: other tests check how it ends.
    assert done._replace(ended_in_order=True).passed, done


pytestmark = [
    pytest.mark.mission("D1", "D5"),
    pytest.mark.fault("F70", "F71", "F72"),
    pytest.mark.timeout(7200 if RUN_ALL else 300),
]


def test_sqs(tmp_path: Path) -> None:
    server = Ministack().begin()
    try:
        run_cases(CloudConformance, OnSQS, server.url)
        run_storm(OnSQS(server.url), tmp_path)
    finally:
        server.end()


def test_pubsub(tmp_path: Path) -> None:
    server = PubSubServer().begin()
    try:
        run_cases(PubSubConformance, OnPubSub, server.address)
        run_storm(OnPubSub(server.address), tmp_path)
    finally:
        server.end()


def test_kafka(tmp_path: Path) -> None:
    server = KafkaServer().begin()
    try:
        run_cases(KafkaConformance, OnKafka, server.address)
        run_storm(OnKafka(server.address), tmp_path)
    finally:
        server.end()
