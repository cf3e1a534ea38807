"""Amazon SQS, by boto3 (extra `sqs`): `SQSQueue("https://sqs.eu-central-1.amazonaws.com/1234/orders")`.

Other consumers do not see a delivery during the queue's visibility timeout, which `extend` restarts. SQS accepts at
most ten messages per call.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from onceward.protocol.extras import import_extra

from .message import Delivery, Message

MAX_ENTRIES = 10  # per call: a limit of SQS
MAX_WAIT = 20  # seconds of a long poll: a limit of SQS
MAX_VISIBILITY = 12 * 3600  # seconds, counted from the delivery: a limit of SQS
MAX_ATTRIBUTES = 10  # per message: a limit of SQS
MAX_REASON_LENGTH = 500  # characters; a message and its attributes share 256 KB


class SQSQueue:
    """A standard or FIFO queue at this `url`. `client` is your boto3 client; by default one is created.

    `dead_letter` is the URL of the dead letter queue. `ack_deadline` (seconds) defaults to the `VisibilityTimeout` of
    the queue. If you pass it, it applies to the messages received here instead.
    """

    def __init__(
        self, url: str, *, dead_letter: str | None = None, ack_deadline: int | None = None, client: Any = None
    ) -> None:
        self.name = f"sqs/{url.rpartition('/')[2]}"
        self.ack_deadline: float | None = ack_deadline
        self.dead_letters = dead_letter is not None
        self._url = url
        self._dead_letter = dead_letter
        self._client: Any = client
        self._owns_client = client is None
        self._visibility: dict[str, int] = {} if ack_deadline is None else {"VisibilityTimeout": ack_deadline}

    async def open(self) -> None:
        if self._client is None:
            self._client = await asyncio.to_thread(_client)
        if not self._visibility:
            answer = await self._call("get_queue_attributes", AttributeNames=["VisibilityTimeout"])
            self.ack_deadline = float(answer["Attributes"]["VisibilityTimeout"])

    async def close(self) -> None:
        if self._owns_client and self._client is not None:
            self._client.close()
            self._client = None

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        deliveries: list[Delivery] = []
        seconds = min(MAX_WAIT, math.ceil(wait))
        while len(deliveries) < max_messages:
            asked = min(MAX_ENTRIES, max_messages - len(deliveries))
            answer = await self._call(
                "receive_message",
                MaxNumberOfMessages=asked,
                WaitTimeSeconds=0 if deliveries else seconds,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
                **self._visibility,
            )
            found = answer.get("Messages", ())
            deliveries += map(_delivery, found)
            if len(found) < asked:
                break
        return deliveries

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self._call_in_batches("delete_message_batch", deliveries)

    async def nack(self, delivery: Delivery, delay: float) -> None:
        await self._call_in_batches(
            "change_message_visibility_batch",
            [delivery],
            VisibilityTimeout=min(math.ceil(delay), MAX_VISIBILITY),
        )

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        seconds = math.ceil(self.ack_deadline or 0)
        await self._call_in_batches("change_message_visibility_batch", deliveries, VisibilityTimeout=seconds)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        message = delivery.message
        headers = {"onceward-id": message.id, "onceward-reason": reason[:MAX_REASON_LENGTH], **message.headers}
        kept = [(name, value) for name, value in headers.items() if value][:MAX_ATTRIBUTES]
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in kept}
        fifo_fields = {}
        if self._dead_letter is not None and self._dead_letter.endswith(".fifo"):
            fifo_fields = {"MessageGroupId": self.name, "MessageDeduplicationId": message.id}
        await asyncio.to_thread(
            self._client.send_message,
            QueueUrl=self._dead_letter,
            MessageBody=message.body.decode(),
            MessageAttributes=attributes,
            **fifo_fields,
        )
        await self.ack([delivery])

    async def _call(self, verb: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(getattr(self._client, verb), QueueUrl=self._url, **arguments)

    async def _call_in_batches(self, verb: str, deliveries: Sequence[Delivery], **more: int) -> None:
        for start in range(0, len(deliveries), MAX_ENTRIES):
            entries = [
                {"Id": str(number), "ReceiptHandle": one.handle, **more}
                for number, one in enumerate(deliveries[start : start + MAX_ENTRIES])
            ]
            answer = await self._call(verb, Entries=entries)
            _check(verb, answer)


def _delivery(found: Mapping[str, Any]) -> Delivery:
    headers = {
        name: value["StringValue"]
        for name, value in found.get("MessageAttributes", {}).items()
        if "StringValue" in value
    }
    count = int(found.get("Attributes", {}).get("ApproximateReceiveCount", 1))
    return Delivery(Message(found["Body"].encode(), found["MessageId"], headers, count), found["ReceiptHandle"])


def _check(verb: str, answer: Mapping[str, Any]) -> None:
    """Raise if SQS failed for a part of the batch. Sender faults are ignored: those deliveries have expired."""
    failed = [entry for entry in answer.get("Failed", ()) if not entry.get("SenderFault")]
    if failed:
        raise ConnectionError(f"{verb}: SQS failed for {len(failed)} messages ({failed[0].get('Code')})")


def _client() -> Any:
    boto3 = import_extra("boto3", "SQS needs boto3", 'pip install "onceward[sqs]"')
    from botocore.config import Config

    # No retries: the consumer retries what may be retried. The read timeout must exceed a long poll.
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=MAX_WAIT + 10)
    return boto3.client("sqs", config=config)
