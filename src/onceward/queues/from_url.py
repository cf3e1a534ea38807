"""Open a queue by its URL, so that a program can leave the choice of the broker to its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from onceward.errors import ConfigurationError
from onceward.protocol.secrets import url_without_secrets
from onceward.protocol.suggest import did_you_mean

from .port import Queue

Options = Mapping[str, str]


class Broker(NamedTuple):
    """How the queue of a broker is opened, and which options it takes in the query of its URL."""

    open: Callable[[str, Options], Queue]
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
    return broker.open(urlunsplit(parts._replace(query=urlencode(query))), options)


def _rabbitmq(url: str, options: Options) -> Queue:
    from .rabbitmq import RabbitQueue

    return RabbitQueue(url, queue=options["queue"], dead_letter=options.get("dead_letter"))


def _nats(url: str, options: Options) -> Queue:
    from .nats import NatsQueue

    return NatsQueue(
        url,
        stream=options["stream"],
        durable=options["durable"],
        subject=options.get("subject"),
        dead_letter=options.get("dead_letter"),
    )


def _redis(url: str, options: Options) -> Queue:
    from .redis_streams import RedisStreamQueue

    return RedisStreamQueue(
        url, stream=options["stream"], group=options["group"], dead_letter=options.get("dead_letter")
    )


def _sqs(url: str, options: Options) -> Queue:
    from .sqs import SQSQueue

    return SQSQueue(url.removeprefix("sqs+"), dead_letter=options.get("dead_letter"))


BROKERS: Final[Mapping[str, Broker]] = {
    "amqp": Broker(_rabbitmq, ("queue",)),
    "amqps": Broker(_rabbitmq, ("queue",)),
    "nats": Broker(_nats, ("stream", "durable"), ("subject", "dead_letter")),
    "redis": Broker(_redis, ("stream", "group")),
    "rediss": Broker(_redis, ("stream", "group")),
    "sqs+https": Broker(_sqs, ()),
    "sqs+http": Broker(_sqs, ()),
}
