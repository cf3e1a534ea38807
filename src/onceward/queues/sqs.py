"""Amazon SQS, by boto3 (extra `sqs`): `SQSQueue("https://sqs.eu-central-1.amazonaws.com/1234/orders")`.

A delivery is invisible to others for the queue's visibility timeout, which `extend` starts anew. SQS takes at most ten
messages a call.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from onceward.errors import MissingExtra

from .message import Delivery, Message

A_CALL = 10  # messages: SQS takes no more
LONGEST_WAIT = 20  # seconds of a long poll: SQS waits no longer
LONGEST_VISIBILITY = 12 * 3600  # seconds: what SQS allows, counted from the delivery
ATTRIBUTES = 10  # of a message: SQS takes no more
LONGEST_REASON = 500  # characters: enough to know why; a message and its attributes have 256 KB together


class SQSQueue:
    """A standard queue or a FIFO one. `client` is a boto3 client of yours; without one, boto3's own settings hold.

    `dead_letter` is the URL of the queue for what nobody could do. `ack_deadline` (seconds) is asked of the queue
    (`VisibilityTimeout`) unless given; if given, it holds for what is received here, whatever the queue's own is.
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
        self._ours = client is None
        self._given: dict[str, int] = {} if ack_deadline is None else {"VisibilityTimeout": ack_deadline}

    async def open(self) -> None:
        if self._client is None:
            self._client = await asyncio.to_thread(_client)
        if not self._given:
            answer = await self._call("get_queue_attributes", AttributeNames=["VisibilityTimeout"])
            self.ack_deadline = float(answer["Attributes"]["VisibilityTimeout"])

    async def close(self) -> None:
        if self._ours and self._client is not None:
            self._client.close()
            self._client = None

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        deliveries: list[Delivery] = []
        seconds = min(LONGEST_WAIT, math.ceil(wait))
        while len(deliveries) < most:
            asked = min(A_CALL, most - len(deliveries))
            answer = await self._call(
                "receive_message",
                MaxNumberOfMessages=asked,
                WaitTimeSeconds=0 if deliveries else seconds,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
                **self._given,
            )
            found = answer.get("Messages", ())
            deliveries += map(_delivery, found)
            if len(found) < asked:
                break
        return deliveries

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self._in_tens("delete_message_batch", deliveries)

    async def later(self, delivery: Delivery, seconds: float) -> None:
        await self._in_tens(
            "change_message_visibility_batch",
            [delivery],
            VisibilityTimeout=min(math.ceil(seconds), LONGEST_VISIBILITY),
        )

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        seconds = math.ceil(self.ack_deadline or 0)
        await self._in_tens("change_message_visibility_batch", deliveries, VisibilityTimeout=seconds)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        message = delivery.message
        told = {"onceward-id": message.id, "onceward-reason": reason[:LONGEST_REASON], **message.headers}
        kept = [(name, value) for name, value in told.items() if value][:ATTRIBUTES]
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in kept}
        of_fifo = {}
        if self._dead_letter is not None and self._dead_letter.endswith(".fifo"):
            of_fifo = {"MessageGroupId": self.name, "MessageDeduplicationId": message.id}
        await asyncio.to_thread(
            self._client.send_message,
            QueueUrl=self._dead_letter,
            MessageBody=message.body.decode(),
            MessageAttributes=attributes,
            **of_fifo,
        )
        await self.ack([delivery])

    async def _call(self, verb: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(getattr(self._client, verb), QueueUrl=self._url, **arguments)

    async def _in_tens(self, verb: str, deliveries: Sequence[Delivery], **more: int) -> None:
        for start in range(0, len(deliveries), A_CALL):
            entries = [
                {"Id": str(number), "ReceiptHandle": one.handle, **more}
                for number, one in enumerate(deliveries[start : start + A_CALL])
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
    """A batch may fail in part. What SQS calls our fault is a delivery that is ours no longer: it comes again."""
    failed = [one for one in answer.get("Failed", ()) if not one.get("SenderFault")]
    if failed:
        raise ConnectionError(f"{verb}: SQS failed at {len(failed)} messages ({failed[0].get('Code')})")


def _client() -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise MissingExtra("SQS needs boto3", hint='pip install "onceward[sqs]"') from error
    # One try: the consumer repeats what can be repeated. A long poll must fit into the time to read.
    patience = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=LONGEST_WAIT + 10)
    return boto3.client("sqs", config=patience)
