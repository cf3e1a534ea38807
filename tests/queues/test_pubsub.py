"""Google Cloud Pub/Sub: Google's own emulator, the official client."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence

import pytest

from onceward.queues import Delivery, Queue
from onceward.queues.pubsub import PubSubQueue
from onceward.testing.queues import QueueConformance
from tests.servers.pubsub import PubSubServer, Subscription


@pytest.fixture(scope="module")
def pubsub() -> Iterator[PubSubServer]:
    server = PubSubServer().begin()
    yield server
    server.end()


class Noting(PubSubQueue):
    """Notes what was acknowledged."""

    def __init__(self, of: Subscription, dead_letter: str | None, ack_deadline: int) -> None:
        super().__init__(of.name, dead_letter=dead_letter, ack_deadline=ack_deadline)
        self._of = of

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await super().ack(deliveries)
        self._of.acknowledged |= {one.message.id for one in deliveries}


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestPubSub(QueueConformance):
    ack_deadline = 4.0

    @pytest.fixture(autouse=True)
    def _own_subscription(self, pubsub: PubSubServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub.address)
        self._subscription = Subscription(f"t{uuid.uuid4().hex}")
        yield
        self._subscription.close()

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        topic = self._subscription.dead if dead_letters else None
        return Noting(self._subscription, topic, int(ack_deadline))

    async def put(self, body: bytes, id: str) -> None:
        await asyncio.to_thread(self._subscription.put, body)

    async def left(self) -> int:
        return await asyncio.to_thread(self._subscription.left)

    async def dead(self) -> list[bytes]:
        return await asyncio.to_thread(self._subscription.dead_letters)
