"""Queues by URL."""

from __future__ import annotations

import pytest

from onceward.errors import ConfigurationError
from onceward.queues.from_url import open_queue


@pytest.mark.finding("N54")
@pytest.mark.parametrize(
    ("url", "name", "dead_letters"),
    [
        ("amqp://guest:pw@127.0.0.1:5672/shop?queue=orders", "rabbitmq/orders", False),
        ("amqps://127.0.0.1/?queue=orders&dead_letter=dead", "rabbitmq/orders", True),
        ("nats://127.0.0.1:4222?stream=ORDERS&durable=billing", "nats/ORDERS/billing", False),
        ("redis://127.0.0.1:6379/0?stream=orders&group=billing&dead_letter=dead", "redis/orders/billing", True),
        ("sqs+https://sqs.eu-central-1.amazonaws.com/1/orders", "sqs/orders", False),
    ],
)
def test_a_queue_is_opened_by_its_url(url: str, name: str, *, dead_letters: bool) -> None:
    queue = open_queue(url)
    assert (queue.name, queue.dead_letters) == (name, dead_letters)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("amqp://guest:pw@127.0.0.1/shop", r"does not name its queue → add \?queue="),
        ("redis://127.0.0.1?stream=orders", "does not name its group"),
        ("ampq://guest:pw@127.0.0.1/shop", "did you mean 'amqp'"),
        ("orders", "is not the URL of a queue"),
    ],
)
def test_a_wrong_url_is_explained_without_its_password(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        open_queue(url)
    assert "pw" not in str(error.value)
