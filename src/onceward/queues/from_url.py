"""Open a queue by its URL, so that a program can leave the choice of the broker to its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from onceward.errors import ConfigurationError
from onceward.protocol.secrets import url_without_secrets
from onceward.protocol.suggest import did_you_mean

from .port import Queue


class Broker(NamedTuple):
    """The module and class of a broker's queue, and the options that it takes in the query of its URL."""

    module: str
    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ("dead_letter",)


def open_queue(url: str) -> Queue:
    """Return the queue at this URL. Its options are in the query; other parts of the query belong to the broker.

        amqp://user@host/vhost?queue=orders
        nats://host:4222?stream=ORDERS&durable=billing
        redis://host:6379/0?stream=orders&group=billing
        sqs+https://sqs.eu-central-1.amazonaws.com/123456789012/orders

    Each also takes `dead_letter`: the queue, subject or stream of the messages that cannot be processed.
    """
    scheme = urlsplit(url).scheme
    broker = BROKERS.get(scheme)
    if broker is None:
        hint = did_you_mean(scheme, BROKERS, "schemes are") if scheme else f"schemes are {', '.join(BROKERS)}"
        raise ConfigurationError(f"{url_without_secrets(url)!r} is not the URL of a queue", hint=hint)
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    names = broker.required + broker.optional
    options = {name: query.pop(name) for name in names if name in query}
    missing = [name for name in broker.required if name not in options]
    if missing:
        raise ConfigurationError(
            f"{url_without_secrets(url)!r} does not name its {missing[0]}", hint=f"add ?{missing[0]}=… to the URL"
        )
    module = import_module(f".{broker.module}", __package__)  # imported here: it needs the broker's library
    address = urlunsplit(parts._replace(query=urlencode(query))).removeprefix("sqs+")
    queue: Queue = getattr(module, broker.name)(address, **options)
    return queue


_RABBITMQ: Final = Broker("rabbitmq", "RabbitQueue", ("queue",))
_REDIS: Final = Broker("redis_streams", "RedisStreamQueue", ("stream", "group"))
_SQS: Final = Broker("sqs", "SQSQueue", ())

BROKERS: Final[Mapping[str, Broker]] = {
    "amqp": _RABBITMQ,
    "amqps": _RABBITMQ,
    "nats": Broker("nats", "NatsQueue", ("stream", "durable"), ("subject", "dead_letter")),
    "redis": _REDIS,
    "rediss": _REDIS,
    "sqs+https": _SQS,
    "sqs+http": _SQS,
}
