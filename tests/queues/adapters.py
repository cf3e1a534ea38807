"""Adapters by the kind of their broker. Child processes of a test import them too, so nothing else is imported."""

from __future__ import annotations

from onceward.queues import Queue
from onceward.queues.nats import NatsQueue
from onceward.queues.rabbitmq import RabbitQueue
from onceward.queues.redis_streams import RedisStreamQueue
from tests.queues.cloud import CLOUD_BROKERS, cloud_queue

GROUP = "shop"


def adapter(kind: str, url: str, name: str, *, dead_letters: bool, ack_deadline: float) -> Queue:
    """Return an adapter on an existing queue; child processes of a test use it too."""
    if kind in CLOUD_BROKERS:
        return cloud_queue(kind, url, name, dead_letters=dead_letters, ack_deadline=ack_deadline)
    dead = f"{name}.dead" if dead_letters else None
    if kind == "nats":
        return NatsQueue(url, stream=name, durable=GROUP, dead_letter=dead, ack_deadline=ack_deadline)
    if kind == "redis":
        return RedisStreamQueue(url, stream=name, group=GROUP, dead_letter=dead, ack_deadline=ack_deadline)
    return RabbitQueue(url, queue=name, dead_letter=dead)
