"""The in-process queue behaves like a broker."""

from __future__ import annotations

import pytest

from onceward.queues import MemoryQueue, Queue
from onceward.testing.queues import QueueConformance


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F70", "F71", "F72")
class TestMemory(QueueConformance):
    ack_deadline = 1.0

    @pytest.fixture(autouse=True)
    def _own_queue(self) -> None:
        self.kept = MemoryQueue(ack_deadline=self.ack_deadline)

    def queue(self, *, dead_letters: bool, ack_deadline: float) -> Queue:
        self.kept.dead_letters = dead_letters
        return self.kept

    async def put(self, body: bytes, id: str) -> None:
        self.kept.put(body, id=id)

    async def remaining(self) -> int:
        return len(self.kept)

    async def dead_letters(self) -> list[bytes]:
        return [message.body for message, _ in self.kept.dead]
