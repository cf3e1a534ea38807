"""Adapters by the kind of their broker, also for the children of a test: nothing else is imported."""

from __future__ import annotations

from onceward.queues import Queue
from onceward.queues.nats import NatsQueue
from onceward.queues.rabbitmq import RabbitQueue
from onceward.queues.redis_streams import RedisStreamQueue
from tests.queues.cloud import RENTED, rented

GROUP = "shop"


def adapter(kind: str, url: str, name: str, *, dead_letters: bool, ack_deadline: float) -> Queue:
    """An adapter on a queue that exists; also for the children of a test."""
    if kind in RENTED:
        return rented(kind, url, name, dead_letters=dead_letters, ack_deadline=ack_deadline)
    dead = f"{name}.dead" if dead_letters else None
    if kind == "nats":
        return NatsQueue(url, stream=name, durable=GROUP, dead_letter=dead, ack_deadline=ack_deadline)
    if kind == "redis":
        return RedisStreamQueue(url, stream=name, group=GROUP, dead_letter=dead, ack_deadline=ack_deadline)
    return RabbitQueue(url, queue=name, dead_letter=dead)
