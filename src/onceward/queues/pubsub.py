"""Google Cloud Pub/Sub, pulled by the official client (extra `pubsub`): `PubSubQueue("projects/p/subscriptions/s")`.

One pull is under way at a time, and never given up for being slow: what the server has handed out on a call that nobody
waits for any more would be nobody's until its ack deadline.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from onceward.errors import MissingExtra

from .message import Delivery, Message

A_PULL = 10.0  # seconds that a pull may take: so long it may outlive a consumer that was given its client
A_CALL = 10.0  # seconds that any other call may take
IDS_A_CALL = 1_000  # ack ids: a request has at most 512 KiB
LONGEST_DEADLINE = 600  # seconds: what Pub/Sub allows
LONGEST_REASON = 250  # characters: enough to know why; an attribute has at most 1,024 bytes


class PubSubQueue:
    """A subscription to pull from. `client` is a `SubscriberClient` of yours, `publisher` a `PublisherClient`.

    `ack_deadline` (seconds) and the topic `dead_letter` are asked of the subscription unless given, for which
    `pubsub.subscriptions.get` is needed. If `ack_deadline` is given, it holds for what is received here.
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
        self._topic = dead_letter
        self._client: Any = client
        self._ours = client is None
        self._shown = ack_deadline is not None  # the server has to be told of each delivery
        self._publisher = publisher
        self._pull: asyncio.Future[list[Delivery]] | None = None
        self._waiting: list[Delivery] = []  # more than were asked for
        self._closed = False

    async def open(self) -> None:
        self._closed = False
        if self._client is None:
            self._client = await asyncio.to_thread(_subscriber)
        if self.ack_deadline is None:
            found = await self._call("get_subscription")
            self.ack_deadline = float(found.ack_deadline_seconds)
            self._topic = self._topic or found.dead_letter_policy.dead_letter_topic or None
            self.dead_letters = self._topic is not None

    async def close(self) -> None:
        """What was pulled for nobody goes back at once. A client of ours is closed, and its pull with it."""
        self._closed = True
        waiting, self._waiting, self._pull = self._waiting, [], None
        if waiting:
            with suppress(Exception):  # then they come again at their deadline
                await self._deadline(waiting, 0)
        if self._ours and self._client is not None:
            client, self._client = self._client, None
            await asyncio.to_thread(client.close)

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        if not self._waiting:
            if self._pull is None:
                self._pull = asyncio.ensure_future(asyncio.to_thread(self._pulled, self._client, most))
            await asyncio.wait([self._pull], timeout=wait)
            if not self._pull.done():
                return []
            pull, self._pull = self._pull, None
            self._waiting = pull.result()
        taken, self._waiting = self._waiting[:most], self._waiting[most:]
        return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for ids in _ids(deliveries):
            await self._call("acknowledge", ack_ids=ids)

    async def later(self, delivery: Delivery, seconds: float) -> None:
        await self._deadline([delivery], min(math.ceil(seconds), LONGEST_DEADLINE))

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Also those that were pulled and wait to be received: their deadlines run, too."""
        await self._deadline([*deliveries, *self._waiting], math.ceil(self.ack_deadline or 0))

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if self._publisher is None:
            self._publisher = await asyncio.to_thread(_publisher)
        await asyncio.to_thread(self._publish, delivery.message, reason)
        await self.ack([delivery])

    async def _deadline(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        for ids in _ids(deliveries):
            await self._call("modify_ack_deadline", ack_ids=ids, ack_deadline_seconds=seconds)

    async def _call(self, verb: str, **fields: Any) -> Any:
        request = {"subscription": self._subscription, **fields}
        return await asyncio.to_thread(getattr(self._client, verb), request=request, timeout=A_CALL, retry=None)

    def _pulled(self, client: Any, most: int) -> list[Delivery]:
        """In a thread. A pull that ends after its consumer brings what nobody waits for."""
        from google.api_core.exceptions import Cancelled, DeadlineExceeded

        try:
            answer = client.pull(
                request={"subscription": self._subscription, "max_messages": most}, timeout=A_PULL, retry=None
            )
        except (DeadlineExceeded, Cancelled) as error:
            if isinstance(error, Cancelled) and not self._closed:
                raise
            return []
        deadline = 0 if self._closed else math.ceil(self.ack_deadline or 0)
        ids = [found.ack_id for found in answer.received_messages]
        if ids and (self._closed or self._shown):
            request = {"subscription": self._subscription, "ack_ids": ids, "ack_deadline_seconds": deadline}
            client.modify_ack_deadline(request=request, timeout=A_CALL, retry=None)
        return [_delivery(found) for found in answer.received_messages]

    def _publish(self, message: Message, reason: str) -> None:
        told = {**message.headers, "onceward-id": message.id, "onceward-reason": reason[:LONGEST_REASON]}
        self._publisher.publish(self._topic, message.body, **told).result(timeout=A_CALL)


def _delivery(found: Any) -> Delivery:
    sent = found.message
    headers = dict(sent.attributes)
    if sent.ordering_key:
        headers["ordering_key"] = sent.ordering_key
    # The attempts are counted only for a subscription that has a dead letter policy.
    message = Message(sent.data, sent.message_id, headers, found.delivery_attempt or 1)
    return Delivery(message, found.ack_id)


def _ids(deliveries: Sequence[Delivery]) -> list[list[str]]:
    ids = [one.handle for one in deliveries]
    return [ids[start : start + IDS_A_CALL] for start in range(0, len(ids), IDS_A_CALL)]


def _subscriber() -> Any:
    return _library().SubscriberClient()


def _publisher() -> Any:
    return _library().PublisherClient()


def _library() -> Any:
    try:
        from google.cloud import pubsub_v1  # type: ignore[attr-defined,unused-ignore]  # untyped beside some of its siblings
    except ImportError as error:
        raise MissingExtra("Pub/Sub needs its client library", hint='pip install "onceward[pubsub]"') from error
    return pubsub_v1
