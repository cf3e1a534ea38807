"""Google Cloud Pub/Sub, pulled by the official client (extra `pubsub`): `PubSubQueue("projects/p/subscriptions/s")`.

One pull is in progress at a time, and it is never abandoned for being slow: messages that the server returns to an
abandoned call would be stuck until their ack deadline.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from onceward.errors import MissingExtra

from .message import Delivery, Message

PULL_TIMEOUT = 10.0  # seconds; a pull with the caller's own client may outlive the consumer by this long
CALL_TIMEOUT = 10.0  # seconds, for all other calls
IDS_PER_CALL = 1_000  # ack ids; a request may have 512 KiB
MAX_DEADLINE = 600  # seconds: a limit of Pub/Sub
MAX_REASON_LENGTH = 250  # characters; an attribute may have 1,024 bytes


class PubSubQueue:
    """A pull `subscription`: `projects/PROJECT/subscriptions/NAME`.

    `client` is your `SubscriberClient`, `publisher` your `PublisherClient`; without them, default ones are created.
    `ack_deadline` (seconds) and the topic `dead_letter` default to those of the subscription, which requires the
    permission `pubsub.subscriptions.get`. If you pass `ack_deadline`, it applies to the messages received here.
    """

    def __init__(
        self,
        subscription: str,
        *,
        dead_letter: str | None = None,
        ack_deadline: int | None = None,
        client: Any = None,
        publisher: Any = None,
    ) -> None:
        self.name = f"pubsub/{subscription}"
        self._subscription = subscription
        self.ack_deadline: float | None = ack_deadline
        self.dead_letters = dead_letter is not None
        self._dead_letter_topic = dead_letter
        self._client: Any = client
        self._owns_client = client is None
        self._sets_deadline = ack_deadline is not None  # differs from the subscription's: set it for each delivery
        self._publisher = publisher
        self._pull: asyncio.Future[list[Delivery]] | None = None
        self._pulled: list[Delivery] = []  # not received by the consumer yet
        self._closed = False

    async def open(self) -> None:
        self._closed = False
        if self._client is None:
            self._client = await asyncio.to_thread(_subscriber)
        if self.ack_deadline is None:
            found = await self._call("get_subscription")
            self.ack_deadline = float(found.ack_deadline_seconds)
            self._dead_letter_topic = self._dead_letter_topic or found.dead_letter_policy.dead_letter_topic or None
            self.dead_letters = self._dead_letter_topic is not None

    async def close(self) -> None:
        """Return unreceived messages immediately, and close the client if this queue created it."""
        self._closed = True
        pulled, self._pulled, self._pull = self._pulled, [], None
        if pulled:
            with suppress(Exception):  # then they are redelivered at their deadline
                await self._set_deadline(pulled, 0)
        if self._owns_client and self._client is not None:
            client, self._client = self._client, None
            await asyncio.to_thread(client.close)

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        if not self._pulled:
            if self._pull is None:
                self._pull = asyncio.ensure_future(asyncio.to_thread(self._pull_messages, self._client, max_messages))
            await asyncio.wait([self._pull], timeout=wait)
            if not self._pull.done():
                return []
            pull, self._pull = self._pull, None
            self._pulled = pull.result()
        taken, self._pulled = self._pulled[:max_messages], self._pulled[max_messages:]
        return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for ids in _ids(deliveries):
            await self._call("acknowledge", ack_ids=ids)

    async def nack(self, delivery: Delivery, delay: float) -> None:
        await self._set_deadline([delivery], min(math.ceil(delay), MAX_DEADLINE))

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the deliveries, and those that were pulled and not received yet: their deadlines run, too."""
        await self._set_deadline([*deliveries, *self._pulled], math.ceil(self.ack_deadline or 0))

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if self._publisher is None:
            self._publisher = await asyncio.to_thread(_publisher)
        await asyncio.to_thread(self._publish, delivery.message, reason)
        await self.ack([delivery])

    async def _set_deadline(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        for ids in _ids(deliveries):
            await self._call("modify_ack_deadline", ack_ids=ids, ack_deadline_seconds=seconds)

    async def _call(self, verb: str, **fields: Any) -> Any:
        request = {"subscription": self._subscription, **fields}
        return await asyncio.to_thread(getattr(self._client, verb), request=request, timeout=CALL_TIMEOUT, retry=None)

    def _pull_messages(self, client: Any, max_messages: int) -> list[Delivery]:
        """Pull in a thread. If the queue was closed in the meantime, return the messages to the subscription."""
        from google.api_core.exceptions import Cancelled, DeadlineExceeded

        try:
            answer = client.pull(
                request={"subscription": self._subscription, "max_messages": max_messages},
                timeout=PULL_TIMEOUT,
                retry=None,
            )
        except (DeadlineExceeded, Cancelled) as error:
            if isinstance(error, Cancelled) and not self._closed:
                raise
            return []
        deadline = 0 if self._closed else math.ceil(self.ack_deadline or 0)
        ids = [found.ack_id for found in answer.received_messages]
        if ids and (self._closed or self._sets_deadline):
            request = {"subscription": self._subscription, "ack_ids": ids, "ack_deadline_seconds": deadline}
            client.modify_ack_deadline(request=request, timeout=CALL_TIMEOUT, retry=None)
        return [_delivery(found) for found in answer.received_messages]

    def _publish(self, message: Message, reason: str) -> None:
        attributes = {**message.headers, "onceward-id": message.id, "onceward-reason": reason[:MAX_REASON_LENGTH]}
        self._publisher.publish(self._dead_letter_topic, message.body, **attributes).result(timeout=CALL_TIMEOUT)


def _delivery(found: Any) -> Delivery:
    sent = found.message
    headers = dict(sent.attributes)
    if sent.ordering_key:
        headers["ordering_key"] = sent.ordering_key
    # Pub/Sub counts attempts only if the subscription has a dead letter policy.
    message = Message(sent.data, sent.message_id, headers, found.delivery_attempt or 1)
    return Delivery(message, found.ack_id)


def _ids(deliveries: Sequence[Delivery]) -> list[list[str]]:
    ids = [delivery.handle for delivery in deliveries]
    return [ids[start : start + IDS_PER_CALL] for start in range(0, len(ids), IDS_PER_CALL)]


def _subscriber() -> Any:
    return _library().SubscriberClient()


def _publisher() -> Any:
    return _library().PublisherClient()


def _library() -> Any:
    try:
        from google.cloud import pubsub_v1  # type: ignore[attr-defined,unused-ignore]  # untyped, depending on installed siblings
    except ImportError as error:
        raise MissingExtra("Pub/Sub needs its client library", hint='pip install "onceward[pubsub]"') from error
    return pubsub_v1
