"""Kafka, by confluent-kafka (extra `kafka`): `KafkaQueue("orders", {"bootstrap.servers": "…", "group.id": "shop"})`.

Kafka knows neither "later" nor "this one is done". What has to come again is kept here and handed out again when it is
due. Offsets are committed in order, so what was done ahead of it comes again after a crash, and is recognised then.
While a handler works, polling goes on with the partitions paused: `max.poll.interval.ms` may be shorter than the work.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from onceward.errors import ConfigurationError, MissingExtra

from .message import Delivery, Message
from .offsets import Offsets

POLL_INTERVAL = 300_000  # ms: what the library takes for `max.poll.interval.ms` if nobody says otherwise
MOST_AHEAD = 10_000  # offsets: so many are remembered beyond one that is not done, and come again after a crash
A_FLUSH = 10.0  # seconds for a dead letter to be confirmed
OURS = {"enable.auto.commit": False, "enable.auto.offset.store": False}
KEY = "kafka-key"
"""The header that tells the message's key."""

Partition = tuple[str, int]


class PartitionOffset(Struct, frozen=True, eq=False):
    """Where a delivery is from. `offsets` is of this assignment: another one starts anew."""

    partition: Partition
    offset: int
    offsets: Offsets


class KafkaQueue:
    """A topic, read as a member of a group. `settings` are librdkafka's, of which commits are ours to make.

    `dead_letter` is a topic for what nobody could do. Unless you say otherwise, a new group begins with the oldest
    message (`auto.offset.reset`), and not with the next one.
    """

    def __init__(
        self,
        topic: str,
        settings: Mapping[str, Any],
        *,
        dead_letter: str | None = None,
        most_ahead: int = MOST_AHEAD,
    ) -> None:
        taken = sorted(OURS.keys() & settings.keys())
        if taken or not settings.get("group.id"):
            raise ConfigurationError(
                f"{taken[0]} is not yours to set" if taken else "a consumer of Kafka belongs to a group",
                hint="offsets are committed here, in order" if taken else 'say which: {"group.id": "shop"}',
            )
        self.name = f"kafka/{topic}/{settings['group.id']}"
        self.ack_deadline: float | None = int(settings.get("max.poll.interval.ms", POLL_INTERVAL)) / 1000
        self.dead_letters = dead_letter is not None
        self._topic = topic
        self._settings = {"auto.offset.reset": "earliest", **settings, **OURS}
        self._dead_letter = dead_letter
        self._most_ahead = most_ahead
        self._consumer: Any = None
        self._producer: Any = None
        self._turn = threading.Lock()  # to pause, to poll, to resume: else the last word might be somebody else's pause
        self._lock = threading.Lock()  # what follows; the library calls back in the thread that polls
        self._partitions: dict[Partition, Offsets] = {}
        self._again: list[tuple[float, int, Delivery]] = []
        self._numbers = itertools.count()
        self._paused: set[Partition] = set()
        self._unsure: set[Partition] = set()  # just assigned: paused or not, as it was when we had it before

    async def open(self) -> None:
        await asyncio.to_thread(self._subscribe)

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._producer = None  # every dead letter was confirmed
        if consumer is not None:
            await asyncio.to_thread(consumer.close)  # leaves the group: others get the partitions at once

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        due, next_due = self._take_due(most)
        if due:
            return due
        return await asyncio.to_thread(self._poll, most, min(wait, next_due))

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        touched: dict[Partition, Offsets] = {}
        with self._lock:
            for delivery in deliveries:
                place: PartitionOffset = delivery.handle
                place.offsets.done(place.offset)
                if self._partitions.get(place.partition) is place.offsets:
                    touched[place.partition] = place.offsets
        if touched:
            await asyncio.to_thread(self._commit, touched)

    async def later(self, delivery: Delivery, seconds: float) -> None:
        message = delivery.message
        again = Delivery(
            Message(message.body, message.id, message.headers, message.deliveries + 1), handle=delivery.handle
        )
        with self._lock:
            if self._is_ours(delivery):
                heapq.heappush(self._again, (time.monotonic() + seconds, next(self._numbers), again))

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        await asyncio.to_thread(self._publish, delivery.message, reason)
        await self.ack([delivery])

    async def extend(self, deliveries: Sequence[Delivery]) -> None:  # noqa: ARG002 (a poll speaks for all of them)
        """Show that we live: a poll. Who polls gets messages, unless all is paused; `receive` resumes."""
        if self._turn.acquire(blocking=False):  # else somebody is at it
            self._turn.release()
            await asyncio.to_thread(self._poll_paused)

    # ── in a thread ──

    def _subscribe(self) -> None:
        kafka = _library()
        self._consumer = kafka.Consumer(self._settings)
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        with self._lock:
            for one in partitions:
                self._partitions[one.topic, one.partition] = Offsets()
                self._unsure.add((one.topic, one.partition))

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        """They are somebody else's now. What is in hand of them is finished; who gets it next asks the store."""
        with self._lock:
            for one in partitions:
                self._partitions.pop((one.topic, one.partition), None)
                self._unsure.discard((one.topic, one.partition))
                self._paused.discard((one.topic, one.partition))
            self._again = [entry for entry in self._again if self._is_ours(entry[2])]
            heapq.heapify(self._again)

    def _is_ours(self, delivery: Delivery) -> bool:
        place: PartitionOffset = delivery.handle
        return self._partitions.get(place.partition) is place.offsets

    def _take_due(self, most: int) -> tuple[list[Delivery], float]:
        """What was put off and is due, and in how many seconds the next one is."""
        due: list[Delivery] = []
        with self._lock:
            now = time.monotonic()
            while self._again and len(due) < most and self._again[0][0] <= now:
                due.append(heapq.heappop(self._again)[2])
            return due, max(0.0, self._again[0][0] - now) if self._again else float("inf")

    def _poll(self, most: int, wait: float) -> list[Delivery]:
        deliveries: list[Delivery] = []
        with self._turn:
            with self._lock:
                ahead = {where for where, offsets in self._partitions.items() if offsets.ahead >= self._most_ahead}
            self._pause(ahead)
            found = self._consumer.poll(wait)
            while found is not None:
                self._take(found, deliveries)
                found = self._consumer.poll(0) if len(deliveries) < most else None
            if not deliveries:
                with suppress(_library().KafkaException):  # it is tried again, and no reason not to poll
                    self._commit(dict(self._partitions))
        return deliveries

    def _poll_paused(self) -> None:
        deliveries: list[Delivery] = []
        with self._turn:
            with self._lock:
                everything = set(self._partitions)
            self._pause(everything)
            found = self._consumer.poll(0)
            if found is not None:
                self._take(found, deliveries)
        with self._lock:
            for delivery in deliveries:  # one that was fetched before the pause, at most
                heapq.heappush(self._again, (0.0, next(self._numbers), delivery))

    def _take(self, found: Any, deliveries: list[Delivery]) -> None:
        """An error is told when it comes alone: what was received before it has to be handed out."""
        error = found.error()
        if error is not None:
            if not deliveries and error.code() != _library().KafkaError._PARTITION_EOF:  # noqa: SLF001 (its public name)
                raise _library().KafkaException(error)
            return
        where, offset = (found.topic(), found.partition()), found.offset()
        with self._lock:
            offsets = self._partitions.get(where)
            if offsets is None:
                return  # taken from us meanwhile: whoever has it now gets the message
            offsets.received(offset)
        headers = {name: (value or b"").decode(errors="replace") for name, value in found.headers() or ()}
        if found.key() is not None:
            headers[KEY] = found.key().decode(errors="replace")
        message = Message(found.value() or b"", f"{where[0]}-{where[1]}-{offset}", headers)
        deliveries.append(Delivery(message, PartitionOffset(where, offset, offsets)))

    def _pause(self, wanted: set[Partition]) -> None:
        """Exactly these are paused from now on."""
        partition = _library().TopicPartition
        with self._lock:
            unsure, self._unsure = self._unsure, set()
        more, fewer = wanted - (self._paused - unsure), (self._paused | unsure) - wanted
        if more:
            self._consumer.pause([partition(*where) for where in more])
        if fewer:
            self._consumer.resume([partition(*where) for where in fewer])
        self._paused = wanted

    def _commit(self, partitions: Mapping[Partition, Offsets]) -> None:
        """What moved of these. What fails here is committed with whatever comes next, or at the next poll."""
        with self._lock:
            moved = [(where, offsets, offsets.position) for where, offsets in partitions.items() if offsets.moved]
        if not moved:
            return
        partition = _library().TopicPartition
        self._consumer.commit(offsets=[partition(*where, to) for where, _, to in moved], asynchronous=False)
        with self._lock:
            for _, offsets, to in moved:
                offsets.committed(to)

    def _publish(self, message: Message, reason: str) -> None:
        if self._producer is None:
            same = {name: value for name, value in self._settings.items() if name.startswith(OF_BROKERS)}
            self._producer = _library().Producer(same)
        failed: list[Any] = []
        headers = {**message.headers, "onceward-id": message.id, "onceward-reason": reason}
        key = headers.pop(KEY, None)
        self._producer.produce(
            self._dead_letter,
            message.body,
            key,
            headers=list(headers.items()),
            on_delivery=lambda error, _: failed.append(error),
        )
        self._producer.flush(A_FLUSH)
        if failed != [None]:
            raise ConnectionError(f"the dead letter was not confirmed: {failed[0] if failed else 'no answer'}")


OF_BROKERS = ("bootstrap.", "metadata.broker", "security.", "sasl.", "ssl.", "enable.ssl", "client.", "socket.")
"""How settings begin that say where the brokers are and who we are: a producer needs the same."""


def _library() -> Any:
    try:
        import confluent_kafka
    except ImportError as error:
        raise MissingExtra("Kafka needs confluent-kafka", hint='pip install "onceward[kafka]"') from error
    return confluent_kafka
