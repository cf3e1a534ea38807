"""The cloud brokers, on emulators and without the adapters. The emulators keep their messages in memory."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from onceward.queues import Queue
from onceward.queues.kafka import KafkaQueue
from onceward.queues.pubsub import PubSubQueue
from onceward.queues.sqs import SQSQueue

PATIENCE = 30.0  # seconds for a call
SHORTEST_SESSION = 3.0  # seconds: a busy machine must not look like a dead one
LOOKING = 3.0  # seconds without a message after which there are none: longer than the ack deadline of a storm

CLOUD_BROKERS = ("kafka", "pubsub", "sqs")

Sent = Sequence[tuple[bytes, str]]


class NeverRestarted:
    """A server that is not restarted, because it would lose its messages."""

    def kill(self) -> None: ...
    def begin(self) -> None: ...


def cloud_queue(kind: str, url: str, name: str, *, dead_letters: bool, ack_deadline: float) -> Queue:
    """Return an adapter on an existing queue; child processes of a test use it too."""
    if kind == "kafka":
        ms = int(max(ack_deadline, SHORTEST_SESSION) * 1000)
        timeouts = {"max.poll.interval.ms": ms, "session.timeout.ms": ms, "heartbeat.interval.ms": ms // 6}
        dead = f"{name}-dead" if dead_letters else None
        return KafkaQueue(name, of_group(url, name) | timeouts, dead_letter=dead)
    if kind == "pubsub":
        os.environ["PUBSUB_EMULATOR_HOST"] = url
        dead = f"projects/test/topics/{name}-dead" if dead_letters else None
        return PubSubQueue(f"projects/test/subscriptions/{name}", dead_letter=dead, ack_deadline=int(ack_deadline))
    dead = f"{url}/000000000000/{name}-dead" if dead_letters else None
    client = sqs_client(url)
    return SQSQueue(f"{url}/000000000000/{name}", dead_letter=dead, ack_deadline=int(ack_deadline), client=client)


class CloudBroker:
    """What the three brokers have in common."""

    kind: str

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = f"orders-{uuid.uuid4().hex}"

    async def make(self) -> None:
        raise NotImplementedError

    async def send(self, messages: Sent) -> None:
        raise NotImplementedError

    async def remaining(self) -> int:
        raise NotImplementedError

    async def dead_letters(self) -> list[bytes]:
        raise NotImplementedError

    def close(self) -> None:
        """Close its clients."""

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        return cloud_queue(self.kind, self.url, self.name, dead_letters=dead_letters, ack_deadline=ack_deadline)


# ── Kafka ──


def of_group(url: str, name: str) -> dict[str, Any]:
    return {"bootstrap.servers": url, "group.id": f"of-{name}"}


class OnKafka(CloudBroker):
    kind = "kafka"

    async def make(self) -> None:
        for topic in (self.name, f"{self.name}-dead"):
            self.onlooker.list_topics(topic, timeout=PATIENCE)  # the mock creates topics that are asked for

    async def send(self, messages: Sent) -> None:
        self.produce([(body, -1) for body, _ in messages])

    def produce(self, messages: list[tuple[bytes, int]]) -> None:
        """Send each message to its partition; -1 means any."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.url})
        for body, partition in messages:
            producer.produce(self.name, body, partition=partition)
        assert producer.flush(PATIENCE) == 0

    async def remaining(self) -> int:
        return sum(self._ends(self.name).values()) - self.committed()

    def committed(self) -> int:
        """Return how many messages of all partitions are committed."""
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(self.name, number) for number in self._ends(self.name)]
        return sum(max(0, one.offset) for one in self.onlooker.committed(asked, timeout=PATIENCE))

    def _ends(self, topic: str) -> dict[int, int]:
        from confluent_kafka import TopicPartition

        look = self.onlooker
        partitions = look.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        return {
            number: look.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE)[1]
            for number in partitions
        }

    async def dead_letters(self) -> list[bytes]:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        topic, look = f"{self.name}-dead", self.onlooker
        found: list[bytes] = []
        ends = self._ends(topic)
        look.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
        while len(found) < sum(ends.values()):
            found += [one.value() or b"" for one in look.consume(100, timeout=0.5)]
        look.unassign()
        return found

    @cached_property
    def onlooker(self) -> Any:
        """Return a consumer that reads the group's commits and never joins it."""
        from confluent_kafka import Consumer

        return Consumer(of_group(self.url, self.name))

    def close(self) -> None:
        self.onlooker.close()


# ── Pub/Sub ──


class OnPubSub(CloudBroker):
    kind = "pubsub"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        os.environ["PUBSUB_EMULATOR_HOST"] = url
        self._topic = f"projects/test/topics/{self.name}"
        self._subscription = f"projects/test/subscriptions/{self.name}"

    async def make(self) -> None:
        from google.cloud.pubsub_v1 import PublisherClient

        with PublisherClient() as publisher, self.subscriber() as subscriber:
            for more in ("", "-dead"):
                topic = f"{self._topic}{more}"
                publisher.create_topic(name=topic)
                subscriber.create_subscription(name=f"{self._subscription}{more}", topic=topic, ack_deadline_seconds=10)

    async def send(self, messages: Sent) -> None:
        from google.cloud.pubsub_v1 import PublisherClient

        with PublisherClient() as publisher:
            for future in [publisher.publish(self._topic, body) for body, _ in messages]:
                await asyncio.to_thread(future.result, timeout=PATIENCE)

    async def remaining(self) -> int:
        """Take, count and return all messages: the emulator has no counter."""
        with self.subscriber() as subscriber:
            found: dict[str, str] = {}
            while more := self._pulled(subscriber, self._subscription):
                found |= {one.message.message_id: one.ack_id for one in more}
            if found:
                subscriber.modify_ack_deadline(
                    subscription=self._subscription, ack_ids=list(found.values()), ack_deadline_seconds=0
                )
            return len(found)

    async def dead_letters(self) -> list[bytes]:
        with self.subscriber() as subscriber:
            return [one.message.data for one in self._pulled(subscriber, f"{self._subscription}-dead")]

    def _pulled(self, subscriber: Any, subscription: str) -> list[Any]:
        from google.api_core.exceptions import DeadlineExceeded

        try:
            answer = subscriber.pull(subscription=subscription, max_messages=1_000, timeout=LOOKING, retry=None)
        except DeadlineExceeded:
            return []
        return list(answer.received_messages)

    def subscriber(self) -> Any:
        from google.cloud.pubsub_v1 import SubscriberClient

        return SubscriberClient()


# ── SQS ──


def sqs_client(url: str) -> Any:
    import boto3

    return boto3.client(
        "sqs", endpoint_url=url, region_name="eu-central-1", aws_access_key_id="none", aws_secret_access_key="none"
    )


class OnSQS(CloudBroker):
    kind = "sqs"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client = sqs_client(url)

    async def make(self) -> None:
        for more in ("", "-dead"):
            self._client.create_queue(QueueName=f"{self.name}{more}", Attributes={"VisibilityTimeout": "30"})

    async def send(self, messages: Sent) -> None:
        for start in range(0, len(messages), 10):
            entries = [
                {"Id": id, "MessageBody": body.decode(), "MessageAttributes": self._named(id)}
                for body, id in messages[start : start + 10]
            ]
            answer = self._client.send_message_batch(QueueUrl=self._of(self.name), Entries=entries)
            assert not answer.get("Failed"), answer

    def _named(self, id: str) -> dict[str, Any]:
        return {"sender-id": {"DataType": "String", "StringValue": id}}

    def _of(self, name: str) -> str:
        return f"{self.url}/000000000000/{name}"

    async def remaining(self) -> int:
        kinds = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self._client.get_queue_attributes(QueueUrl=self._of(self.name), AttributeNames=kinds)
        return sum(int(number) for number in answer["Attributes"].values())

    async def dead_letters(self) -> list[bytes]:
        found = self._client.receive_message(QueueUrl=self._of(f"{self.name}-dead"), MaxNumberOfMessages=10)
        return [one["Body"].encode() for one in found.get("Messages", ())]
