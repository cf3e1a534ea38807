"""Kafka, by confluent-kafka (extra `kafka`): `KafkaQueue("orders", {"bootstrap.servers": "…", "group.id": "shop"})`.

Kafka can neither delay nor acknowledge a single message. This adapter keeps messages to be retried in memory and
returns them when they are due. Offsets are committed in order. So after a crash, Kafka redelivers messages that were
done ahead of an unfinished one; they are recognised by their keys.
While a handler works, the adapter keeps polling with the partitions paused, so `max.poll.interval.ms` may be shorter
than the work.
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

from onceward.errors import ConfigurationError
from onceward.protocol.extras import import_extra

from .message import Delivery, Message

__all__ = ["KafkaQueue"]

DEFAULT_POLL_INTERVAL = 300_000  # ms: the library's default of `max.poll.interval.ms`
MAX_UNCOMMITTED = 10_000  # offsets tracked beyond one that is not done; redelivered after a crash
FLUSH_TIMEOUT = 10.0  # seconds until a dead letter must be confirmed
REQUIRED_SETTINGS = {"enable.auto.commit": False, "enable.auto.offset.store": False}
KEY_HEADER = "kafka-key"
"""The header that holds the message's Kafka key."""

Partition = tuple[str, int]


class Offsets:
    """Tracks which offsets of one partition are done, in any order, and how far they may be committed.

    Kafka stores one number per partition: everything below it is done. So a message that is done before an earlier one
    cannot be committed yet. After a crash, Kafka redelivers both.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()  # received and not done
        self._end = 0  # one past the last offset that was received
        self._committed = 0

    def mark_received(self, offset: int) -> None:
        if self._end == 0:
            self._committed = offset  # the first offset of this assignment: no message is done yet
        self._open.add(offset)
        self._end = max(self._end, offset + 1)

    def mark_done(self, offset: int) -> None:
        self._open.discard(offset)

    @property
    def position(self) -> int:
        """The offset to commit: the first that is not done, or one past the last."""
        return min(self._open, default=self._end)

    @property
    def uncommitted(self) -> int:
        """How many offsets lie between the position and the last one received."""
        return self._end - self.position

    @property
    def needs_commit(self) -> bool:
        """Whether the position has advanced since the last commit."""
        return self.position > self._committed

    def mark_committed(self, position: int) -> None:
        self._committed = position


class PartitionOffset(Struct, frozen=True, eq=False):
    """The origin of a delivery. Each assignment of the partition has its own `offsets`."""

    partition: Partition
    offset: int
    offsets: Offsets


class KafkaQueue:
    """A `topic`, read as a member of a consumer group. `settings` are librdkafka's, except those for commits.

    `dead_letter` is the topic of dead letters. By default a new group starts with the oldest message
    (`auto.offset.reset`), not with the next one. `max_uncommitted` limits how far a partition is read beyond a message
    that is not done.
    """

    def __init__(
        self,
        topic: str,
        settings: Mapping[str, Any],
        *,
        dead_letter: str | None = None,
        max_uncommitted: int = MAX_UNCOMMITTED,
    ) -> None:
        reserved = sorted(REQUIRED_SETTINGS.keys() & settings.keys())
        if reserved or not settings.get("group.id"):
            raise ConfigurationError(
                f"{reserved[0]} must not be set" if reserved else "a Kafka consumer needs a group",
                hint="Onceward commits offsets itself, in order" if reserved else 'pass {"group.id": "shop"}',
            )
        self.name = f"kafka/{topic}/{settings['group.id']}"
        self.ack_deadline: float | None = int(settings.get("max.poll.interval.ms", DEFAULT_POLL_INTERVAL)) / 1000
        self.dead_letters = dead_letter is not None
        self._topic = topic
        self._settings = {"auto.offset.reset": "earliest", **settings, **REQUIRED_SETTINGS}
        self._dead_letter = dead_letter
        self._max_uncommitted = max_uncommitted
        self._consumer: Any = None
        self._producer: Any = None
        self._poll_lock = threading.Lock()  # pause, poll and resume must not interleave with another thread's
        self._lock = threading.Lock()  # guards the attributes below; callbacks run in the polling thread
        self._partitions: dict[Partition, Offsets] = {}
        self._delayed: list[tuple[float, int, Delivery]] = []
        self._numbers = itertools.count()
        self._paused: set[Partition] = set()
        self._just_assigned: set[Partition] = set()  # may still be paused from an earlier assignment

    async def open(self) -> None:
        await asyncio.to_thread(self._subscribe)

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._producer = None  # every dead letter is confirmed
        if consumer is not None:
            await asyncio.to_thread(consumer.close)  # leaves the group: other members get the partitions immediately

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        due, next_due = self._take_due(max_messages)
        if due:
            return due
        return await asyncio.to_thread(self._poll, max_messages, min(wait, next_due))

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        touched: dict[Partition, Offsets] = {}
        with self._lock:
            for delivery in deliveries:
                origin: PartitionOffset = delivery.handle
                origin.offsets.mark_done(origin.offset)
                if self._partitions.get(origin.partition) is origin.offsets:
                    touched[origin.partition] = origin.offsets
        if touched:
            await asyncio.to_thread(self._commit, touched)

    async def nack(self, delivery: Delivery, delay: float) -> None:
        message = delivery.message
        delayed = Delivery(
            Message(message.body, message.id, message.headers, message.deliveries + 1), handle=delivery.handle
        )
        with self._lock:
            if self._is_assigned(delivery):
                heapq.heappush(self._delayed, (time.monotonic() + delay, next(self._numbers), delayed))

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        await asyncio.to_thread(self._publish, delivery.message, reason)
        await self.ack([delivery])

    async def extend(self, deliveries: Sequence[Delivery]) -> None:  # noqa: ARG002 (one poll covers all of them)
        """Poll, so that the group keeps this member. All partitions are paused meanwhile; `receive` resumes them."""
        if self._poll_lock.acquire(blocking=False):  # otherwise another thread is polling
            self._poll_lock.release()
            await asyncio.to_thread(self._poll_paused)

    # ── These run in a thread ──

    def _subscribe(self) -> None:
        kafka = _library()
        self._consumer = kafka.Consumer(self._settings)
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        with self._lock:
            for assigned in partitions:
                self._partitions[assigned.topic, assigned.partition] = Offsets()
                self._just_assigned.add((assigned.topic, assigned.partition))

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        """Forget partitions that went to another member. Messages in flight finish; the next member asks the store."""
        with self._lock:
            for revoked in partitions:
                self._partitions.pop((revoked.topic, revoked.partition), None)
                self._just_assigned.discard((revoked.topic, revoked.partition))
                self._paused.discard((revoked.topic, revoked.partition))
            self._delayed = [entry for entry in self._delayed if self._is_assigned(entry[2])]
            heapq.heapify(self._delayed)

    def _is_assigned(self, delivery: Delivery) -> bool:
        origin: PartitionOffset = delivery.handle
        return self._partitions.get(origin.partition) is origin.offsets

    def _take_due(self, max_messages: int) -> tuple[list[Delivery], float]:
        """Return the delayed messages that are due, and the seconds until the next one is."""
        due: list[Delivery] = []
        with self._lock:
            now = time.monotonic()
            while self._delayed and len(due) < max_messages and self._delayed[0][0] <= now:
                due.append(heapq.heappop(self._delayed)[2])
            return due, max(0.0, self._delayed[0][0] - now) if self._delayed else float("inf")

    def _poll(self, max_messages: int, wait: float) -> list[Delivery]:
        deliveries: list[Delivery] = []
        with self._poll_lock:
            with self._lock:
                full = {
                    key for key, offsets in self._partitions.items() if offsets.uncommitted >= self._max_uncommitted
                }
            self._set_paused(full)
            found = self._consumer.poll(wait)
            while found is not None:
                self._add_delivery(found, deliveries)
                found = self._consumer.poll(0) if len(deliveries) < max_messages else None
            if not deliveries:
                with suppress(_library().KafkaException):  # committed again later; polling continues
                    self._commit(dict(self._partitions))
        return deliveries

    def _poll_paused(self) -> None:
        deliveries: list[Delivery] = []
        with self._poll_lock:
            with self._lock:
                everything = set(self._partitions)
            self._set_paused(everything)
            found = self._consumer.poll(0)
            if found is not None:
                self._add_delivery(found, deliveries)
        with self._lock:
            for delivery in deliveries:  # at most one, fetched before the pause
                heapq.heappush(self._delayed, (0.0, next(self._numbers), delivery))

    def _add_delivery(self, found: Any, deliveries: list[Delivery]) -> None:
        """Add what `poll` returned. An error is raised only if no message precedes it, so that no message is lost."""
        error = found.error()
        if error is not None:
            if not deliveries and error.code() != _library().KafkaError._PARTITION_EOF:  # noqa: SLF001 (its public name)
                raise _library().KafkaException(error)
            return
        partition, offset = (found.topic(), found.partition()), found.offset()
        with self._lock:
            offsets = self._partitions.get(partition)
            if offsets is None:
                return  # revoked in the meantime: its new owner receives the message
            offsets.mark_received(offset)
        headers = {name: (value or b"").decode(errors="replace") for name, value in found.headers() or ()}
        if found.key() is not None:
            headers[KEY_HEADER] = found.key().decode(errors="replace")
        message = Message(found.value() or b"", f"{partition[0]}-{partition[1]}-{offset}", headers)
        deliveries.append(Delivery(message, PartitionOffset(partition, offset, offsets)))

    def _set_paused(self, wanted: set[Partition]) -> None:
        """Pause exactly these partitions and resume all others."""
        topic_partition = _library().TopicPartition
        with self._lock:
            just_assigned, self._just_assigned = self._just_assigned, set()
        to_pause, to_resume = wanted - (self._paused - just_assigned), (self._paused | just_assigned) - wanted
        if to_pause:
            self._consumer.pause([topic_partition(*partition) for partition in to_pause])
        if to_resume:
            self._consumer.resume([topic_partition(*partition) for partition in to_resume])
        self._paused = wanted

    def _commit(self, partitions: Mapping[Partition, Offsets]) -> None:
        """Commit the positions that advanced. After a failure, the next call or the next poll commits them."""
        with self._lock:
            advanced = [
                (partition, offsets, offsets.position)
                for partition, offsets in partitions.items()
                if offsets.needs_commit
            ]
        if not advanced:
            return
        topic_partition = _library().TopicPartition
        self._consumer.commit(
            offsets=[topic_partition(*partition, position) for partition, _, position in advanced], asynchronous=False
        )
        with self._lock:
            for _, offsets, position in advanced:
                offsets.mark_committed(position)

    def _publish(self, message: Message, reason: str) -> None:
        if self._producer is None:
            settings = {name: value for name, value in self._settings.items() if name.startswith(CONNECTION_SETTINGS)}
            self._producer = _library().Producer(settings)
        failed: list[Any] = []
        headers = {**message.headers, "onceward-id": message.id, "onceward-reason": reason}
        key = headers.pop(KEY_HEADER, None)
        self._producer.produce(
            self._dead_letter,
            message.body,
            key,
            headers=list(headers.items()),
            on_delivery=lambda error, _: failed.append(error),
        )
        self._producer.flush(FLUSH_TIMEOUT)
        if failed != [None]:
            raise ConnectionError(f"the dead letter was not confirmed: {failed[0] if failed else 'no response'}")


CONNECTION_SETTINGS = (
    "bootstrap.",
    "metadata.broker",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl",
    "client.",
    "socket.",
)
"""Prefixes of the settings for broker addresses and credentials, which the producer of dead letters shares."""


def _library() -> Any:
    return import_extra("confluent_kafka", "Kafka needs confluent-kafka", 'pip install "onceward[kafka]"')
