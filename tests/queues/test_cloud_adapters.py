"""Cloud adapters without a broker: a missing client library, and the answers of SQS to a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from onceward.errors import MissingExtra
from onceward.queues import Queue
from onceward.queues.kafka import KafkaQueue
from onceward.queues.pubsub import PubSubQueue
from onceward.queues.sqs import SQSQueue, _check


@pytest.mark.parametrize(
    ("module", "extra", "queue"),
    [
        ("boto3", "sqs", lambda: SQSQueue("https://sqs.example/1/orders")),
        ("google.cloud", "pubsub", lambda: PubSubQueue("projects/p/subscriptions/s")),
        ("confluent_kafka", "kafka", lambda: KafkaQueue("orders", {"group.id": "shop"})),
    ],
)
async def test_a_missing_client_library_names_the_extra_that_brings_it(
    module: str, extra: str, queue: Callable[[], Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"onceward\[{extra}\]"):
        await queue().open()


def test_a_batch_that_sqs_did_in_part_has_failed() -> None:
    failed = {"Failed": [{"Id": "3", "Code": "InternalError", "SenderFault": False}]}
    with pytest.raises(ConnectionError, match="1 messages"):
        _check("delete_message_batch", failed)


def test_a_delivery_that_is_ours_no_longer_is_no_failure_of_sqs() -> None:
    """Its current consumer settles it; if that fails, SQS redelivers it."""
    _check("delete_message_batch", {"Failed": [{"Id": "3", "Code": "ReceiptHandleIsInvalid", "SenderFault": True}]})
    _check("delete_message_batch", {"Successful": []})
